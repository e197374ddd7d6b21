
local units = nil
if ask == 'force' or (ask == 'check' and a <= left) then
  units = a
elseif ask == 'lease' then
  if a <= left then units = max(min(floor(left / c), b), a) end
elseif ask ~= 'refund' then
  cost = a
end
for i = 1, count do
  if units then adds[i] = min(units, spaces[i]) else adds[i] = 0 end
  granted = max(granted, adds[i], backs[i])
end
