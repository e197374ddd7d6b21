
-- Sliding log: a ring of the times of the last units. A window is half open: a unit leaves one period after it came.
--   state = head | capacity | tail | newest | ends | time * capacity, each a number of 8 bytes
--   head: units ever admitted; unit p is at place p modulo capacity. tail: the first unit that was inside at the last
--   write. newest: the time of the last unit. ends: when the key expires
local function time_of(limit, unit)
  local from = 40 + (unit % limit.capacity) * 8
  return (unpack('>I8', call('GETRANGE', limit.key, from, from + 7)))
end

-- Returns the first unit from `low` on whose time is after `time`. The last unit before `high` is known to be such a unit.
local function first_after(limit, low, high, time)
  while low < high do
    local middle = floor((low + high) / 2)
    if time_of(limit, middle) <= time then low = middle + 1 else high = middle end
  end
  return low
end

local function read_log(limit)
  local key, most, period = limit.key, argv[limit.at + 1] + 0, argv[limit.at + 2] + 0
  local state, head, first = call('GETRANGE', key, 0, 39), 0, 0
  limit.most, limit.period, limit.capacity, limit.newest, limit.ends = most, period, 0, 0, 0
  if state ~= '' then
    if #state ~= 40 then return nil end
    local capacity, tail, newest, ends
    head, capacity, tail, newest, ends = unpack('>I8I8I8I8I8', state)
    if head >= EXACT or capacity < 1 or capacity > 65536 or tail > head or newest > LAST or ends >= EXACT then return nil end
    if call('STRLEN', key) ~= 40 + 8 * capacity then return nil end
    limit.capacity, limit.newest, limit.ends = capacity, newest, ends
    local gone = now - period
    first = head
    if newest > gone then
      local low = max(tail, head - capacity)
      -- In most calls, only a few units have left since the last write.
      local place = low % capacity
      local many, found = min(8, head - low, capacity - place), false
      local text = call('GETRANGE', key, 40 + 8 * place, 39 + 8 * (place + many))
      for i = 0, many - 1 do
        local time = unpack('>I8', text, 8 * i + 1)
        if time > gone then
          first, found, limit.first_time = low + i, true, time
          break
        end
      end
      if not found then first = first_after(limit, low + many, head - 1, gone) end
      if newest > now + period then
        limit.healed, limit.newest, limit.first_time = true, now, now
      end
    end
  end
  limit.head, limit.first = head, first
  local room = max(0, most - (head - first))
  limit.space = room
  if ask == 'refund' and limit.newest == b and head > first and not limit.healed then
    -- Only the newest units: without them, the times before are still right.
    limit.back = min(a, head - first_after(limit, first, head - 1, b - 1))
  end
  return room
end

-- Writes the units inside, and `add` units of this time, as a new ring.
local function write_log(limit, add, time, inside)
  local key, capacity, first = limit.key, limit.capacity, limit.first
  local text
  if limit.healed then
    text = rep(pack('>I8', time), inside + add)
  else
    text = ''
    if inside > 0 then
      local place = first % capacity
      local many = min(inside, capacity - place)
      text = call('GETRANGE', key, 40 + 8 * place, 39 + 8 * (place + many))
      if many < inside then text = text .. call('GETRANGE', key, 40, 39 + 8 * (inside - many)) end
    end
    text = text .. rep(pack('>I8', time), add)
  end
  if inside + add > capacity then capacity = min(limit.most, max(2 * capacity, inside + add, 16)) end
  local start, units, zero = first % capacity, inside + add, pack('>I8', 0)
  if start + units <= capacity then
    text = rep(zero, start) .. text .. rep(zero, capacity - start - units)
  else
    local cut = 8 * (capacity - start)
    text = string.sub(text, cut + 1) .. rep(zero, capacity - units) .. string.sub(text, 1, cut)
  end
  limit.capacity = capacity
  local header = pack('>I8I8I8I8I8', first + units, capacity, first, time, limit.ends)
  call('SET', key, header .. text, 'PX', ceil((limit.ends - now) / 1000) + margin)
end

local function end_log(limit)
  local key, most, period, add, back = limit.key, limit.most, limit.period, limit.add, limit.back
  local head, first, newest, time = limit.head, limit.first, limit.newest, nil
  if back > 0 then
    head, newest = head - back, 0
    if head > first then newest = time_of(limit, head - 1) end
    call('SETRANGE', key, 0, pack('>I8I8I8I8I8', head, limit.capacity, first, newest, limit.ends))
  elseif add > 0 or (limit.healed and ask ~= 'peek') then
    local inside, capacity = head - first, limit.capacity
    time = max(now, newest)
    local lives = limit.ends < time + period or given
    if lives then limit.ends = time + ceil(period * 1.25) end
    if limit.healed or inside + add > capacity then
      if limit.ends < time + period then limit.ends = time + ceil(period * 1.25) end
      write_log(limit, add, time, inside)
    else
      local place, text = head % capacity, pack('>I8', time)
      local many = min(add, capacity - place)
      call('SETRANGE', key, 40 + 8 * place, rep(text, many))
      if many < add then call('SETRANGE', key, 40, rep(text, add - many)) end
      call('SETRANGE', key, 0, pack('>I8I8I8I8I8', head + add, capacity, first, time, limit.ends))
      if lives then call('PEXPIRE', key, ceil((limit.ends - now) / 1000) + margin) end
    end
    head, newest = head + add, time
  end
  local left = max(0, most - (head - first))
  local units, wait, reset = wanted(left, most), 0, 0
  if units > 0 then
    local unit = head + units - most - 1
    local came
    if unit >= limit.head then
      came = time
    elseif unit == first and limit.first_time then
      came = limit.first_time
    elseif limit.healed then
      came = now
    else
      came = time_of(limit, unit)
    end
    wait = came + period - now
  end
  if head > first then reset = newest + period - now end
  add_to_reply(left, wait, reset, 0)
end
