
local limits, left = {}, EXACT
local count = floor((#argv - 4) / 5)
for i = 1, count do
  local kind = argv[5 * i]
  local room, space, back, finish = kinds[kind](KEYS[i], 5 * i, kind)
  -- The key's name is left out, because it may identify a client.
  if type(room) == 'table' then return room end
  left = min(left, room)
  limits[i] = { space = space, back = back, finish = finish, add = 0 }
end
