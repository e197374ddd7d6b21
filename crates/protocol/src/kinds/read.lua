
-- The figures of each limit.
local spaces, backs, adds, finishes, left = {}, {}, {}, {}, EXACT
local count = floor((#argv - 4) / 5)
for i = 1, count do
  local kind, room = argv[5 * i], nil
  room, spaces[i], backs[i], finishes[i] = kinds[kind](KEYS[i], 5 * i, kind)
  -- An error. It does not contain the key's name, because the name may identify a client.
  if not finishes[i] then return room end
  left = min(left, room)
end
