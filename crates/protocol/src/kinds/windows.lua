
-- Windows: f fixed; s sliding; S sliding and strict. Numbers: limit, period, and for s and S the unit of time in weights.
-- Reply: start of the window, units of the previous window, units of this window.
--   state = index of the window | its units | units of the previous window, each a number of 8 bytes; the name of the key
--   contains the period
local slides, period = kind ~= 'f', argv[at + 2] + 0
local into, state = now % period, call('GET', key)
local present = (now - into) / period
local index, current, previous, is_late = present, 0, 0, false
if state then
  local i, c, p
  if #state == 24 then i, c, p = struct.unpack('>I8I8I8', state) end
  if not i or max(i, c, p) >= EXACT then
    -- Version 0.1 wrote the numbers as text.
    i, c, p = string.match(state, '^(%d+) (%d+) (%d+)$')
    if not i then return redis.error_reply(ours) end
    i, c, p = i + 0, c + 0, p + 0
  end
  if i >= present then
    current, previous = c, p
    if i > present + 1 then healed = true else index = i end
  elseif slides and i + 1 == present then
    previous = c
  end
end
room = argv[at + 1] - current
if slides and previous > 0 then
  local unit, to_end = argv[at + 3] + 0, period
  if index == present then to_end = period - into end
  local product, whole = previous * ceil(to_end / unit), period / unit
  if product >= EXACT then
    room = 0
  elseif kind == 'S' then
    room = room - ceil(product / whole)
  else
    room = room - floor(product / whole)
  end
end
if room < 0 then room = 0 end
space = max(0, OWED - current)
if ask == 'refund' then
  if floor(b / period) == index then
    back = min(a, current)
    current = current - back
  end
elseif ask == 'post' and b ~= index then
  -- Units of the previous window count there, if it still counts. Units of other windows are not charged.
  is_late = slides and b + 1 == index
  space = is_late and max(0, OWED - previous)
end
-- The decision is between these two parts.
if is_late then previous = previous + add else current = current + add end
if granted > 0 or (healed and ask ~= 'peek') then
  local lasts = 1
  if slides then lasts = 2 end
  local lives = (index + lasts) * period - now
  call('SET', key, struct.pack('>I8I8I8', index, current, previous), 'PX', ceil(lives / 1000) + margin)
end
r1, r2, r3 = index * period, previous, current
