
-- Sliding log: a ring of the times of the last units. A window is half open: a unit leaves one period after it came.
-- Numbers: limit, period. Reply: as for spacing.
--   state = head | capacity | tail | newest | ends | time * capacity, each a number of 8 bytes
--   head: units ever admitted; unit p is at place p modulo capacity. tail: the first unit that was inside at the last
--   write. newest: the time of the last unit. ends: when the key expires
local most, period = argv[at + 1] + 0, argv[at + 2] + 0
local head, first, capacity, newest, ends, first_time, first_after = 0, 0, 0, 0, 0, nil, nil
local state = call('GETRANGE', key, 0, 39)
if state ~= '' then
  if #state ~= 40 then return redis.error_reply(ours) end
  local tail
  head, capacity, tail, newest, ends = struct.unpack('>I8I8I8I8I8', state)
  if head >= EXACT or capacity < 1 or capacity > 65536 or tail > head or newest > LAST or ends >= EXACT then
    return redis.error_reply(ours)
  end
  if call('STRLEN', key) ~= 40 + 8 * capacity then return redis.error_reply(ours) end
  local gone = now - period
  first = head
  if newest > gone then
    first = max(tail, head - capacity)
    local from = 40 + 8 * (first % capacity)
    local text, next = call('GETRANGE', key, from, from + 63), 1
    if ask == 'refund' or gone >= struct.unpack('>I8', text, #text - 7) then
      -- Returns the first unit from `low` on whose time is after `time`. The unit `high` is known to be such a unit.
      first_after = function(low, high, time)
        while low < high do
          local middle = floor((low + high) / 2)
          local place = 40 + 8 * (middle % capacity)
          if struct.unpack('>I8', call('GETRANGE', key, place, place + 7)) <= time then low = middle + 1 else high = middle end
        end
        return low
      end
    end
    -- In most calls, only a few units have left since the last write.
    while first < head - 1 do
      if next > #text then
        first, first_time = first_after(first, head - 1, gone), nil
        break
      end
      first_time, next = struct.unpack('>I8', text, next)
      if first_time > gone then break end
      first = first + 1
    end
    if first == head - 1 then first_time = newest end
    if newest > now + period then
      healed, newest, first_time = true, now, now
    end
  end
end
room = max(0, most - (head - first))
space = room
if ask == 'refund' and newest == b and head > first and not healed then
  -- Only the newest units: without them, the times before are still right.
  back = min(a, head - first_after(first, head - 1, b - 1))
end
-- The decision is between these two parts.
local stored, time = head, nil
if back > 0 then
  head, newest = head - back, 0
  if head > first then
    local place = 40 + 8 * ((head - 1) % capacity)
    newest = struct.unpack('>I8', call('GETRANGE', key, place, place + 7))
  end
  call('SETRANGE', key, 0, struct.pack('>I8I8I8I8I8', head, capacity, first, newest, ends))
elseif add > 0 or (healed and ask ~= 'peek') then
  local inside, text = head - first, nil
  time = max(now, newest)
  local lives = ends < time + period or timed
  if lives then ends = time + ceil(period * 1.25) end
  text = struct.pack('>I8', time)
  if healed or inside + add > capacity then
    -- Writes the units inside, and the units of this time, as a new ring.
    if healed then
      text = string.rep(text, inside + add)
    else
      local units = ''
      if inside > 0 then
        local place = first % capacity
        local many = min(inside, capacity - place)
        units = call('GETRANGE', key, 40 + 8 * place, 39 + 8 * (place + many))
        if many < inside then units = units .. call('GETRANGE', key, 40, 39 + 8 * (inside - many)) end
      end
      text = units .. string.rep(text, add)
    end
    local units, zero = inside + add, struct.pack('>I8', 0)
    if units > capacity then capacity = min(most, max(2 * capacity, units, 16)) end
    local start = first % capacity
    if start + units <= capacity then
      text = string.rep(zero, start) .. text .. string.rep(zero, capacity - start - units)
    else
      local cut = 8 * (capacity - start)
      text = string.sub(text, cut + 1) .. string.rep(zero, capacity - units) .. string.sub(text, 1, cut)
    end
    local header = struct.pack('>I8I8I8I8I8', first + units, capacity, first, time, ends)
    call('SET', key, header .. text, 'PX', ceil((ends - now) / 1000) + margin)
  else
    local place = head % capacity
    local many = capacity - place
    if add <= many then
      if add > 1 then text = string.rep(text, add) end
      call('SETRANGE', key, 40 + 8 * place, text)
    else
      call('SETRANGE', key, 40 + 8 * place, string.rep(text, many))
      call('SETRANGE', key, 40, string.rep(text, add - many))
    end
    call('SETRANGE', key, 0, struct.pack('>I8I8I8I8I8', head + add, capacity, first, time, ends))
    if lives then call('PEXPIRE', key, ceil((ends - now) / 1000) + margin) end
  end
  head, newest = head + add, time
end
local left, units = max(0, most - (head - first)), 0
if cost > left and cost <= most then units = cost elseif left == 0 then units = 1 end
r1, r2, r3, r4 = left, 0, 0, 0
if units > 0 then
  local unit, came = head + units - most - 1, nil
  if unit >= stored then
    came = time
  elseif unit == first and first_time then
    came = first_time
  elseif healed then
    came = now
  else
    local place = 40 + 8 * (unit % capacity)
    came = struct.unpack('>I8', call('GETRANGE', key, place, place + 7))
  end
  r2 = came + period - now
end
if head > first then r3 = newest + period - now end
