
if ask == 'force' or (ask == 'check' and a <= left) then
  units = a
elseif ask == 'lease' then
  if a <= left then units = max(min(floor(left / c), b), a) end
elseif ask ~= 'refund' then
  cost = a
end
