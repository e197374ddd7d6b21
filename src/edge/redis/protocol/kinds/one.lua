if ask == 'check' then
  if a <= room then add = min(a, space) else cost = a end
elseif ask == 'force' then
  add = min(a, space)
elseif ask == 'lease' then
  if a <= room then add = min(max(min(floor(room / c), b), a), space) end
elseif ask ~= 'refund' then
  cost = a
end
granted = max(add, back)
