
-- GCRA. Numbers: interval, ticks in a microsecond, capacity. Reply: how far the theoretical arrival time is ahead.
--   state = interval | ticks in a microsecond | time | how far the theoretical arrival time is ahead of it, each a number of
--   8 bytes
local interval, scale, capacity = argv[at + 1] + 0, argv[at + 2] + 0, argv[at + 3] + 0
local ahead, state = 0, call('GET', key)
if state then
  local old, ticks, t
  if #state == 32 then old, ticks, t, ahead = struct.unpack('>I8I8I8I8', state) end
  if not old or max(old, ticks, t, ahead) >= EXACT then
    -- Version 0.1 wrote the numbers as text.
    old, ticks, t, ahead = string.match(state, '^(%d+) (%d+) (%d+) (%d+)$')
    if not old then return redis.error_reply(ours) end
    old, ticks, t, ahead = old + 0, ticks + 0, t + 0, ahead + 0
  end
  if old ~= interval or ticks ~= scale then
    if old == 0 then return redis.error_reply(ours) end
    -- A debt under another interval is converted unit for unit, rounded up.
    local from, to = 1, 1
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
  state = struct.pack('>I8I8I8I8', interval, scale, now, r1)
  call('SET', key, state, 'PX', ceil(r1 / scale / 1000) + margin)
end
