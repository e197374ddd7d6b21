
local limits, left = {}, EXACT
for i = 1, count do
  local kind, room = argv[5 * i], nil
  local limit = { at = 5 * i, key = KEYS[i], kind = kind, back = 0, add = 0 }
  if kind == 'l' then
    room = read_log(limit)
  elseif kind == 'p' or kind == 'P' then
    room = read_parts(limit)
  elseif kind == 'm' then
    room = read_spacing(limit)
  elseif kind == 'i' or kind == 'a' or kind == 'A' then
    room = read_batches(limit)
  else
    room = read_old(limit)
  end
  -- The key's name is left out, because it may identify a client.
  if not room then return redis.error_reply(ours) end
  if room < left then left = room end
  limits[i] = limit
end
if ask == 'force' or (ask == 'check' and a <= left) then
  for i = 1, count do
    local limit = limits[i]
    limit.add = min(a, limit.space)
    granted = max(granted, limit.add)
  end
elseif ask == 'refund' then
  for i = 1, count do granted = max(granted, limits[i].back) end
else
  cost = a
end
reply = { granted, now }
for i = 1, count do
  local limit, kind = limits[i], limits[i].kind
  if kind == 'l' then
    end_log(limit)
  elseif kind == 'p' or kind == 'P' then
    end_parts(limit)
  elseif kind == 'm' then
    end_spacing(limit)
  elseif kind == 'i' or kind == 'a' or kind == 'A' then
    end_batches(limit)
  else
    end_old(limit)
  end
end
return reply
