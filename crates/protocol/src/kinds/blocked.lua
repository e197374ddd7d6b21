
-- GCRA with blocks: b. Numbers: interval, ticks in a microsecond, capacity; then as one text the lengths of the first and of the
-- longest block, and how far the theoretical arrival time is ahead when one unit is free.
-- Reply: how far the theoretical arrival time is ahead; 1 if the key is in a block, otherwise 0.
--   state = interval | ticks in a microsecond | time | how far the theoretical arrival time is ahead of it, without the block |
--   mark | the rest of the block, each a number of 8 bytes. The marks are those of the module `algorithm::blocked`
local interval, scale, capacity = argv[at + 1] + 0, argv[at + 2] + 0, argv[at + 3] + 0
local shortest, longest, free = string.match(argv[at + 4], '^(%d+) (%d+) (%d+)$')
shortest, longest, free = shortest + 0, longest + 0, free + 0
local ahead, mark, past, rest, state = 0, 0, 0, 0, call('GET', key)
if state then
  local old, ticks, t
  if #state == 48 then old, ticks, t, ahead, mark, rest = struct.unpack('>I8I8I8I8I8I8', state) end
  if not old or old == 0 or ticks == 0 or mark > 30 or max(old, ticks, t, ahead, rest) >= EXACT then return redis.error_reply(ours) end
  if mark % 2 == 1 then
    -- In a block, a debt is a time, so another interval does not move the end.
    if ticks ~= scale then ahead = min(OWED, ceil(ahead / ticks) * scale) end
  elseif old ~= interval or ticks ~= scale then
    -- A debt under another interval is converted unit for unit, rounded up.
    local from, to = 1, 1
    while floor(old / from) >= 67108864 do from = from * 2 end
    while ceil(interval / to) >= 67108864 do to = to * 2 end
    local part = ceil(ceil((ahead % old) / from) * ceil(interval / to) / floor(old / from)) * to
    ahead = min(floor(ahead / old), floor(OWED / interval)) * interval + part
  end
  if ahead > OWED then ahead = OWED end
  rest = min(rest, longest)
  if mark % 2 == 1 then ahead = min(OWED, ahead + free + rest * scale) end
  local gone = (now - t) * scale
  if -gone > capacity then
    healed = true
  elseif gone < ahead then
    ahead = min(OWED, ahead - gone)
  else
    -- The key keeps its mark for as long as its last block was.
    if mark > 0 and gone - ahead >= min(shortest * 2 ^ (ceil(mark / 2) - 1), longest) * scale then mark = 0 end
    ahead = 0
  end
  if mark % 2 == 1 and ahead > free then
    past = min(max(0, now - t), rest)
    rest = rest - past
    if rest == 0 then past = 0 end
  else
    mark, rest = mark + mark % 2, 0
  end
end
if ahead < capacity then room = floor((capacity - ahead) / interval) end
space = floor((OWED - ahead) / interval)
if ask == 'refund' and mark % 2 == 0 then
  local own = min(a, floor(OWED / interval)) * interval
  local units = min(max(0, own - max(0, now - b) * scale), ahead)
  ahead, back = ahead - units, ceil(units / interval)
end
-- The decision is between these two parts.
ahead = ahead + add * interval
-- A denied check starts a block, unless it leaves units to other classes.
local starts = ask == 'check' and a > room and a * interval <= capacity and capacity == free + interval and mark % 2 == 0
if starts then
  local level = ceil(mark / 2)
  if level == 0 or shortest * 2 ^ (level - 1) < longest then level = level + 1 end
  mark, rest = 2 * level - 1, min(shortest * 2 ^ (level - 1), longest)
  -- If the wait is longer without the block, the block adds nothing to it.
  if ahead > free + rest * scale then rest = 0 else ahead = free + rest * scale end
end
if add > 0 or back > 0 or starts or (healed and ask ~= 'peek') then
  local alone, quiet = ahead, 0
  if mark % 2 == 1 then alone = ahead - free - rest * scale end
  if mark > 0 then quiet = min(shortest * 2 ^ (ceil(mark / 2) - 1), longest) end
  -- A charge in a block keeps the beginning of the block.
  state = struct.pack('>I8I8I8I8I8I8', interval, scale, now - past, alone, mark, rest + past)
  call('SET', key, state, 'PX', ceil((ceil(ahead / scale) + quiet) / 1000) + margin)
end
r1, r2 = ahead, mark % 2
