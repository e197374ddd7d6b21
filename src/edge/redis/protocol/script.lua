-- Answers one question about one key of a limiter. model.rs does the same in Rust and documents it; tests compare the two.
-- All numbers are whole and below 2^53, or are only compared. The script reads and checks everything before it writes.
--
-- KEYS  the state of each limit; for a post, then the posts of each limit
-- ARGV  the time in microseconds, or empty for the server's time; the question; the milliseconds that keys live longer than
--       necessary; the question's first number; then for each limit its kind and three numbers:
--         g  interval, ticks in a microsecond, capacity       GCRA
--         f  limit, period, -                                 fixed window
--         s  limit, period, unit of time in weights           sliding window; S: strict
--       then the question's two other numbers, if it has them
-- State g    interval, ticks in a microsecond, time, how far the theoretical arrival time is ahead of it
-- State f s  index of the window, its units, units of the previous window; the name of the key contains the period
-- Posts      process -> epoch, total, time, previous epoch, its total
-- Reply      units granted, time; for each limit how far ahead it is, or the start of its window, previous units, units
--
-- Most calls check one limit, so that path creates no table except the reply. `+ 0` converts a text to a number.
local EXACT, OWED, LAST = 9007199254740992, 4503599627370496, 4503599627370496
local argv, call, floor, ceil = ARGV, redis.call, math.floor, math.ceil
local now
if argv[1] == '' then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = argv[1] + 0
end
if now > LAST then now = LAST end
local ask, margin, a = argv[2], argv[3], argv[4] + 0
local ours = 'NOTOURS a key holds no state of a limiter'

-- Returns the units left, how far the state is ahead, and whether it was moved back from the future.
local function pace(state, at)
  local interval, scale, capacity = argv[at + 1] + 0, argv[at + 2] + 0, argv[at + 3] + 0
  local ahead, healed = 0, false
  if state then
    local p, q, t, owed = string.match(state, '^([1-9]%d*) (%d+) (%d+) (%d+)$')
    if not p then return nil end
    ahead = owed + 0
    if p ~= argv[at + 1] or q ~= argv[at + 2] then
      -- A debt under another interval is converted unit for unit, rounded up.
      local old, from, to = p + 0, 1, 1
      while floor(old / from) >= 67108864 do from = from * 2 end
      while ceil(interval / to) >= 67108864 do to = to * 2 end
      local part = ceil(ceil((ahead % old) / from) * ceil(interval / to) / floor(old / from)) * to
      ahead = math.min(floor(ahead / old), floor(OWED / interval)) * interval + part
    end
    if ahead > OWED then ahead = OWED end
    local gone = (now - t) * scale
    if gone >= ahead then
      ahead = 0
    elseif -gone > capacity then
      healed = true
    else
      ahead = ahead - gone
      if ahead > OWED then ahead = OWED end
    end
  end
  if ahead >= capacity then return 0, ahead, healed end
  return floor((capacity - ahead) / interval), ahead, healed
end

-- Returns the units left, the window, its units, the previous units, and whether the state was moved back from the future.
local function windows(state, at)
  local slides, period = argv[at] ~= 'f', argv[at + 2] + 0
  local into = now % period
  local present = (now - into) / period
  local index, current, previous, healed = present, 0, 0, false
  if state then
    local i, c, p = string.match(state, '^(%d+) (%d+) (%d+)$')
    if not i then return nil end
    i = i + 0
    if i >= present then
      current, previous = c + 0, p + 0
      if i > present + 1 then healed = true else index = i end
    elseif slides and i + 1 == present then
      previous = c + 0
    end
  end
  local room = argv[at + 1] - current
  if slides and previous > 0 then
    local unit, to_end = argv[at + 3] + 0, period
    if index == present then to_end = period - into end
    local product, whole = previous * ceil(to_end / unit), period / unit
    if product >= EXACT then
      room = 0
    elseif argv[at] == 'S' then
      room = room - ceil(product / whole)
    else
      room = room - floor(product / whole)
    end
  end
  if room < 0 then room = 0 end
  return room, index, current, previous, healed
end

local function keep_pace(key, at, ahead)
  local state = string.format('%s %s %.0f %.0f', argv[at + 1], argv[at + 2], now, ahead)
  call('SET', key, state, 'PX', ceil(ahead / argv[at + 2] / 1000) + margin)
end

local function keep_windows(key, at, index, current, previous)
  local lasts = 2
  if argv[at] == 'f' then lasts = 1 end
  local lives = (index + lasts) * argv[at + 2] - now
  call('SET', key, string.format('%.0f %.0f %.0f', index, current, previous), 'PX', ceil(lives / 1000) + margin)
end

if ask == 'check' and #argv == 8 then
  local key, granted = KEYS[1], 0
  if argv[5] == 'g' then
    local left, ahead, healed = pace(call('GET', key), 5)
    if not left then return redis.error_reply(ours) end
    if a <= left then
      granted, ahead = a, ahead + a * argv[6]
    end
    if granted > 0 or healed then keep_pace(key, 5, ahead) end
    return { granted, now, ahead }
  end
  local left, index, current, previous, healed = windows(call('GET', key), 5)
  if not left then return redis.error_reply(ours) end
  if a <= left then
    granted, current = a, current + a
  end
  if granted > 0 or healed then keep_windows(key, 5, index, current, previous) end
  return { granted, now, index * argv[7], previous, current }
end

local match, format, min, max = string.match, string.format, math.min, math.max
local KEPT = 3600000000
local count = floor((#argv - 4) / 4)
local b, c = tonumber(argv[4 * count + 5]), tonumber(argv[4 * count + 6])
local limits, left = {}, EXACT
for i = 1, count do
  local at, state = 1 + 4 * i, call('GET', KEYS[i])
  local limit, room = { at = at, kind = argv[at] }, nil
  if limit.kind == 'g' then
    limit.interval, limit.scale, limit.capacity = argv[at + 1] + 0, argv[at + 2] + 0, argv[at + 3] + 0
    room, limit.ahead, limit.healed = pace(state, at)
  else
    limit.period = argv[at + 2] + 0
    room, limit.index, limit.current, limit.previous, limit.healed = windows(state, at)
  end
  -- The key's name is left out, because it may identify a client.
  if not room then return redis.error_reply(ours) end
  left = min(left, room)
  limits[i] = limit
end

local granted = 0

-- Charges units up to the maximum that can be counted; with an epoch, to the window of that epoch.
local function charge(limit, units, epoch)
  if limit.kind == 'g' then
    units = min(units, floor((OWED - limit.ahead) / limit.interval))
    limit.ahead = limit.ahead + units * limit.interval
  else
    local which = 'current'
    if epoch and epoch < limit.index then which = 'previous' end
    units = min(units, max(0, OWED - limit[which]))
    limit[which] = limit[which] + units
  end
  granted = max(granted, units)
end

local function refund(limit)
  local units = a
  if limit.kind == 'g' then
    local own = min(units, floor(OWED / limit.interval)) * limit.interval
    local back = min(max(0, own - max(0, now - b) * limit.scale), limit.ahead)
    limit.ahead = limit.ahead - back
    units = ceil(back / limit.interval)
  elseif floor(b / limit.period) == limit.index then
    units = min(units, limit.current)
    limit.current = limit.current - units
  else
    units = 0
  end
  granted = max(granted, units)
end

-- Returns the units that a post adds to those of its process, and the new record of that process.
local function posted(limit, known)
  if not known then
    if c > 0 then limit.posts = { b, c } end
    return c
  end
  local epoch, total, before, sum
  epoch, total, before, sum = match(known, '^(%d+) (%d+) %d+ (%S+) (%S+)$')
  if not epoch then return nil end
  epoch, total, before, sum = tonumber(epoch), tonumber(total), tonumber(before), tonumber(sum)
  local added = c
  if b > epoch then
    limit.posts = { b, c, epoch, total }
  elseif b == epoch then
    added = c - total
    limit.posts = { b, c, before, sum }
  elseif before == b then
    added = c - sum
    limit.posts = { epoch, total, b, c }
  elseif before and before > b then
    added = 0
  else
    limit.posts = { epoch, total, b, c }
  end
  if added <= 0 then
    limit.posts = nil
    added = 0
  end
  return added
end

if ask == 'check' or ask == 'force' then
  if ask == 'force' or a <= left then
    for i = 1, count do charge(limits[i], a) end
  end
elseif ask == 'lease' then
  if a <= left then
    local units = max(min(floor(left / c), b), a)
    for i = 1, count do charge(limits[i], units) end
  end
elseif ask == 'refund' then
  for i = 1, count do refund(limits[i]) end
elseif ask == 'post' then
  for i = 1, count do
    local limit = limits[i]
    local epochs = 0
    if limit.kind == 's' or limit.kind == 'S' then epochs = 1 end
    if limit.kind == 'g' or b == limit.index or b + epochs == limit.index then
      local hash = KEYS[count + i]
      local known = call('HGET', hash, argv[4])
      local units = posted(limit, known)
      if not units then return redis.error_reply(ours) end
      if limit.kind == 'g' then
        limit.kept = KEPT + ceil(limit.capacity / limit.scale)
      else
        limit.kept = KEPT + limit.period * (1 + epochs)
      end
      if limit.posts and not known then
        -- Processes come and go: remove those that have not posted for this long.
        limit.gone = {}
        local all = call('HGETALL', hash)
        for j = 1, #all, 2 do
          local at = tonumber(match(all[j + 1], '^%d+ %d+ (%d+) ') or 0)
          if now - at > limit.kept then table.insert(limit.gone, all[j]) end
        end
      end
      charge(limit, units, b)
    end
  end
end

local reply, size = { granted, now }, 2
for i = 1, count do
  local limit, key = limits[i], KEYS[i]
  local writes = granted > 0 or (limit.healed and ask ~= 'peek')
  if limit.kind == 'g' then
    if writes then keep_pace(key, limit.at, limit.ahead) end
    reply[size + 1] = limit.ahead
    size = size + 1
  else
    if writes then keep_windows(key, limit.at, limit.index, limit.current, limit.previous) end
    reply[size + 1], reply[size + 2], reply[size + 3] = limit.index * limit.period, limit.previous, limit.current
    size = size + 3
  end
  if limit.posts then
    local posts, hash = limit.posts, KEYS[count + i]
    for _, process in ipairs(limit.gone or {}) do call('HDEL', hash, process) end
    local before = '- -'
    if posts[3] then before = format('%.0f %.0f', posts[3], posts[4]) end
    call('HSET', hash, argv[4], format('%.0f %.0f %.0f ', posts[1], posts[2], now) .. before)
    call('PEXPIRE', hash, ceil(limit.kept / 1000) + margin)
  end
end
return reply
