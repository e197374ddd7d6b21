
local reply = { granted, now }
for _, limit in ipairs(limits) do
  for _, number in ipairs({ limit.finish(limit.add) }) do reply[#reply + 1] = number end
end
return reply
