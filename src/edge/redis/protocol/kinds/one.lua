if units then add = min(units, space) end
granted = max(add, back)
