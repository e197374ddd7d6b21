
local function read_old(limit)
  local at, state, room = limit.at, call('GET', limit.key), nil
  if limit.kind == 'g' then
    room, limit.ahead, limit.healed = pace(state, at)
    if not room then return nil end
    local interval, scale = argv[at + 1] + 0, argv[at + 2] + 0
    limit.interval = interval
    limit.space = floor((OWED - limit.ahead) / interval)
    if ask == 'refund' then
      local own = min(a, floor(OWED / interval)) * interval
      local back = min(max(0, own - max(0, now - b) * scale), limit.ahead)
      limit.ahead = limit.ahead - back
      limit.back = ceil(back / interval)
    end
    return room
  end
  room, limit.index, limit.current, limit.previous, limit.healed = windows(state, at)
  if not room then return nil end
  limit.space = max(0, OWED - limit.current)
  if ask == 'refund' and floor(b / argv[at + 2]) == limit.index then
    limit.back = min(a, limit.current)
    limit.current = limit.current - limit.back
  end
  return room
end

local function end_old(limit)
  local at, key, add = limit.at, limit.key, limit.add
  local writes = granted > 0 or (limit.healed and ask ~= 'peek')
  if limit.kind == 'g' then
    local ahead = limit.ahead + add * limit.interval
    if writes then keep_pace(key, at, ahead) end
    reply[size + 1] = ahead
    size = size + 1
    return
  end
  local current = limit.current + add
  if writes then keep_windows(key, at, limit.index, current, limit.previous) end
  reply[size + 1], reply[size + 2], reply[size + 3] = limit.index * argv[at + 2], limit.previous, current
  size = size + 3
end
