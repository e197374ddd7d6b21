
-- Holds: units that are taken now and settled later. The module `model::holds` does the same in Rust; tests compare the two.
--
-- KEYS  after the states of the limits: the holds of the key
-- ARGV  after the limits: the most units that the key can hold; the most holds; an identity; and the life of a new hold, or
--       the end that the caller expects of the hold with this identity, or 0
-- Reply units granted, time; 1 if the hold was taken or found; the units held; the first and the last end, or 0; then the
--       numbers of each limit
--
-- The holds are a sorted set. A hold is its identity (16 bytes, and the last 7 of them are its units), and its score is its
-- end. So a caller that knows an identity finds the hold at once, whatever its end is. The empty text comes first: its score
-- is the sum of the units of all holds, negative.
local book, identity, span = KEYS[count + 1], argv[#argv - 1], argv[#argv] + 0
local function size(hold) return struct.unpack('>I7', hold, 10) end
local sum, held, ended, found, taken, done = call('ZSCORE', book, ''), 0, {}, nil, nil, 0
if sum then
  held, ended = -sum, call('ZRANGEBYSCORE', book, '(0', now)
  for i = 1, #ended do
    if #ended[i] ~= 16 then return redis.error_reply(ours) end
    held = held - size(ended[i])
  end
  if ask == 'commit' or ask == 'release' or ask == 'renew' then
    local ends = call('ZSCORE', book, identity)
    if ends and ends + 0 > now then found, done = identity, 1 end
    if found and ask ~= 'renew' then held = held - size(found) end
  end
end
left = max(0, min(left, argv[#argv - 3] + 0) - held)
local life = span
if ask == 'renew' then life = a end
if ask == 'commit' then
  -- If the hold is not there before its end, it is settled.
  if found or span <= now then units = a end
elseif ask == 'check' and a <= left then
  units = a
elseif ask == 'hold' and a <= left and call('ZCARD', book) - #ended <= argv[#argv - 2] + 0 then
  taken, done, held = identity, 1, held + a
elseif ask == 'check' or ask == 'hold' or ask == 'peek' then
  cost = a + held
end
if taken or found or #ended > 0 then
  if #ended > 0 then call('ZREMRANGEBYSCORE', book, '(0', now) end
  if found and ask ~= 'renew' then
    call('ZREM', book, found)
  elseif taken or found then
    call('ZADD', book, min(now + life, EXACT - 1), taken or found)
  end
  local alone = 0
  if sum then alone = 1 end
  if call('ZCARD', book) > alone then
    call('ZADD', book, -held, '')
    -- The key expires with its last hold, also if a longer hold was released.
    local final = call('ZRANGE', book, -1, -1, 'WITHSCORES')[2]
    call('PEXPIRE', book, ceil((final - now) / 1000) + margin)
  else
    call('DEL', book)
  end
end
