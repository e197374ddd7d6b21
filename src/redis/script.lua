-- Answers one ask about one key of a limiter. What it does is said in model.rs, which does the same; the two are held together by
-- tests. All numbers are whole and below 2^53, or only compared. All is read and checked before anything is written.
--
-- KEYS  a state for each limit; of a post, then the posts for each limit
-- ARGV  time in microseconds, or nothing for the server's; the ask and its three numbers; how many milliseconds longer than they
--       matter keys live; then for each limit its kind and three numbers:
--         g  interval, ticks in a microsecond, capacity       GCRA
--         f  limit, period, -                                 fixed window
--         s  limit, period, unit of time in weights           sliding window; S: strict
-- State g    interval, ticks in a microsecond, time, how far ahead of it the theoretical arrival time is
-- State f s  index of the window, its units, those of the window before; the period is in the name of the key
-- Posts      process -> epoch, total, time, epoch before, its total
-- Reply      units granted, time; for each limit how far ahead it is, 0, 0; or its window's beginning, units before, units
local EXACT, OWED, LAST, KEPT = 9007199254740992, 4503599627370496, 4503599627370496, 3600000000
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max

local function text(number)
  return string.format('%.0f', number)
end

local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end
now = min(now, LAST)
local ask, a, b, c, margin = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local count = (#ARGV - 6) / 4
local limits, left = {}, EXACT

-- What is owed under another interval, unit for unit, rounded up.
local function convert(ahead, old, new)
  local from, to = 1, 1
  while floor(old / from) >= 67108864 do from = from * 2 end
  while ceil(new / to) >= 67108864 do to = to * 2 end
  local part = ceil(ceil((ahead % old) / from) * ceil(new / to) / floor(old / from)) * to
  return min(min(floor(ahead / old), floor(OWED / new)) * new + part, OWED)
end

local function pace(limit, p, scale, t, ahead)
  limit.interval, limit.scale, limit.capacity = limit.x, limit.y, limit.z
  limit.ahead = 0
  if p then
    if p ~= limit.interval or scale ~= limit.scale then ahead = convert(ahead, p, limit.interval) end
    local step = max(0, t - now) * limit.scale
    if step > limit.capacity then
      limit.healed = true
      limit.ahead = ahead
    else
      limit.ahead = max(0, min(ahead + step, OWED) - max(0, now - t) * limit.scale)
    end
  end
  return floor(max(0, limit.capacity - limit.ahead) / limit.interval)
end

local function windows(limit, index, current, previous)
  limit.period = limit.y
  local slides, present = limit.kind ~= 'f', floor(now / limit.period)
  limit.index, limit.current, limit.previous = present, 0, 0
  if index then
    if index > present + 1 then
      limit.healed = true
      limit.current, limit.previous = current, previous
    elseif index >= present then
      limit.index, limit.current, limit.previous = index, current, previous
    elseif index + 1 == present and slides then
      limit.previous = current
    end
  end
  local room = max(0, limit.x - limit.current)
  if slides and limit.previous > 0 then
    local to_end = limit.period
    if limit.index == present then to_end = limit.period - now % limit.period end
    local product, period = limit.previous * ceil(to_end / limit.z), limit.period / limit.z
    if product >= EXACT then
      room = 0
    elseif limit.kind == 'S' then
      room = max(0, room - ceil(product / period))
    else
      room = max(0, room - floor(product / period))
    end
  end
  return room
end

for i = 1, count do
  local limit = { kind = ARGV[3 + 4 * i], x = tonumber(ARGV[4 + 4 * i]), y = tonumber(ARGV[5 + 4 * i]), z = tonumber(ARGV[6 + 4 * i]) }
  local state, p, q, r, s = redis.call('GET', KEYS[i]), nil, nil, nil, nil
  if limit.kind == 'g' then
    if state then p, q, r, s = string.match(state, '^([1-9]%d*) (%d+) (%d+) (%d+)$') end
    left = min(left, pace(limit, tonumber(p), tonumber(q), tonumber(r), tonumber(s)))
  else
    if state then p, q, r = string.match(state, '^(%d+) (%d+) (%d+)$') end
    left = min(left, windows(limit, tonumber(p), tonumber(q), tonumber(r)))
  end
  -- Without its name, which is of somebody's client.
  if state and not p then return redis.error_reply('NOTOURS a key holds no state of a limiter') end
  limits[i] = limit
end

local granted = 0

-- As far as it can be counted; to the window of an epoch, if there is one.
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

-- How many units a post adds to those of its process, and what is then known of that.
local function posted(limit, known)
  if not known then
    if c > 0 then limit.posts = { b, c } end
    return c
  end
  local epoch, total, before, sum
  epoch, total, before, sum = string.match(known, '^(%d+) (%d+) %d+ (%S+) (%S+)$')
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
      local known = redis.call('HGET', hash, ARGV[3])
      local units = posted(limit, known)
      if not units then return redis.error_reply('NOTOURS a key holds no posts of a limiter') end
      if limit.kind == 'g' then
        limit.kept = KEPT + ceil(limit.capacity / limit.scale)
      else
        limit.kept = KEPT + limit.period * (1 + epochs)
      end
      if limit.posts and not known then
        -- Processes come and go: those that have posted nothing for so long leave.
        limit.gone = {}
        local all = redis.call('HGETALL', hash)
        for j = 1, #all, 2 do
          local at = tonumber(string.match(all[j + 1], '^%d+ %d+ (%d+) ') or 0)
          if now - at > limit.kept then table.insert(limit.gone, all[j]) end
        end
      end
      charge(limit, units, b)
    end
  end
end

local reply = { granted, now }
for i = 1, count do
  local limit, key = limits[i], KEYS[i]
  local state, lives
  if limit.kind == 'g' then
    state = text(limit.interval) .. ' ' .. text(limit.scale) .. ' ' .. text(now) .. ' ' .. text(limit.ahead)
    lives = limit.ahead / limit.scale
    reply[3 * i], reply[3 * i + 1], reply[3 * i + 2] = limit.ahead, 0, 0
  else
    state = text(limit.index) .. ' ' .. text(limit.current) .. ' ' .. text(limit.previous)
    local windows = 2
    if limit.kind == 'f' then windows = 1 end
    lives = (limit.index + windows) * limit.period - now
    reply[3 * i], reply[3 * i + 1], reply[3 * i + 2] = limit.index * limit.period, limit.previous, limit.current
  end
  if granted > 0 or (limit.healed and ask ~= 'peek') then
    redis.call('SET', key, state, 'PX', text(ceil(lives / 1000) + margin))
  end
  if limit.posts then
    local posts, hash = limit.posts, KEYS[count + i]
    for _, process in ipairs(limit.gone or {}) do redis.call('HDEL', hash, process) end
    local before = '- -'
    if posts[3] then before = text(posts[3]) .. ' ' .. text(posts[4]) end
    redis.call('HSET', hash, ARGV[3], text(posts[1]) .. ' ' .. text(posts[2]) .. ' ' .. text(now) .. ' ' .. before)
    redis.call('PEXPIRE', hash, text(ceil(limit.kept / 1000) + margin))
  end
end
return reply
