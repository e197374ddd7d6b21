
local limits, left = {}, EXACT
for i = 1, floor((#argv - 4) / 5) do
  local kind = argv[5 * i]
  local room, space, back, finish = kinds[kind](KEYS[i], 5 * i, kind)
  -- The key's name is left out, because it may identify a client.
  if type(room) == 'table' then return room end
  left = min(left, room)
  limits[i] = { space = space, back = back, finish = finish, add = 0 }
end
if ask == 'force' or (ask == 'check' and a <= left) then
  for i, limit in ipairs(limits) do
    limit.add = min(a, limit.space)
    granted = max(granted, limit.add)
  end
elseif ask == 'refund' then
  for i, limit in ipairs(limits) do granted = max(granted, limit.back) end
else
  cost = a
end
local reply = { granted, now }
for i, limit in ipairs(limits) do
  for _, number in ipairs({ limit.finish(limit.add) }) do reply[#reply + 1] = number end
end
return reply
