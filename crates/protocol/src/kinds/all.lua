for i = 1, count do
  if units then adds[i] = min(units, spaces[i]) else adds[i] = 0 end
  granted = max(granted, adds[i], backs[i])
end
