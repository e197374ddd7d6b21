
-- The kinds of `script.lua`, whose functions this script also has.
local state, interval, scale, ahead, index, current, previous = call('GET', key), nil, nil, nil, nil, nil, nil
if kind == 'g' then
  room, ahead, healed = pace(state, at)
  if not room then return redis.error_reply(ours) end
  interval, scale = argv[at + 1] + 0, argv[at + 2] + 0
  space = floor((OWED - ahead) / interval)
  if ask == 'refund' then
    local own = min(a, floor(OWED / interval)) * interval
    local units = min(max(0, own - max(0, now - b) * scale), ahead)
    ahead, back = ahead - units, ceil(units / interval)
  end
else
  room, index, current, previous, healed = windows(state, at)
  if not room then return redis.error_reply(ours) end
  space = max(0, OWED - current)
  if ask == 'refund' and floor(b / argv[at + 2]) == index then
    back = min(a, current)
    current = current - back
  end
end
-- The decision is between these two parts.
local writes = granted > 0 or (healed and ask ~= 'peek')
if kind == 'g' then
  ahead = ahead + add * interval
  if writes then keep_pace(key, at, ahead) end
  r1 = ahead
else
  current = current + add
  if writes then keep_windows(key, at, index, current, previous) end
  r1, r2, r3 = index * argv[at + 2], previous, current
end
