
-- GCRA. Numbers: interval, ticks in a microsecond, capacity. Reply: how far the theoretical arrival time is ahead.
--   state = interval, ticks in a microsecond, time, how far the theoretical arrival time is ahead of it
local interval, scale, capacity = argv[at + 1] + 0, argv[at + 2] + 0, argv[at + 3] + 0
local ahead, state = 0, call('GET', key)
if state then
  local p, q, t, owed = string.match(state, '^([1-9]%d*) (%d+) (%d+) (%d+)$')
  if not p then return redis.error_reply(ours) end
  ahead = owed + 0
  if p ~= argv[at + 1] or q ~= argv[at + 2] then
    -- A debt under another interval is converted unit for unit, rounded up.
    local old, from, to = p + 0, 1, 1
    while floor(old / from) >= 67108864 do from = from * 2 end
    while ceil(interval / to) >= 67108864 do to = to * 2 end
    local part = ceil(ceil((ahead % old) / from) * ceil(interval / to) / floor(old / from)) * to
    ahead = min(floor(ahead / old), floor(OWED / interval)) * interval + part
  end
  if ahead > OWED then ahead = OWED end
  local gone = (now - t) * scale
  if gone >= ahead then
    ahead = 0
  elseif -gone > capacity then
    healed = true
  else
    ahead = ahead - gone
    if ahead > OWED then ahead = OWED end
  end
end
if ahead < capacity then room = floor((capacity - ahead) / interval) end
space = floor((OWED - ahead) / interval)
if ask == 'refund' then
  local own = min(a, floor(OWED / interval)) * interval
  local units = min(max(0, own - max(0, now - b) * scale), ahead)
  ahead, back = ahead - units, ceil(units / interval)
end
-- The decision is between these two parts.
r1 = ahead + add * interval
if granted > 0 or (healed and ask ~= 'peek') then
  state = string.format('%s %s %.0f %.0f', argv[at + 1], argv[at + 2], now, r1)
  call('SET', key, state, 'PX', ceil(r1 / scale / 1000) + margin)
end
