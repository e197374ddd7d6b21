
-- Token buckets that refill in batches, and windows from first use, which a batch fills: i from first use; a aligned;
-- A aligned, with an adaptive start. Numbers: capacity, period, batch, and for a and A the phase.
-- Reply: end of the period, units used.
--   state = end of the period | units used, each a number of 8 bytes
local state, capacity, period, batch = call('GET', key), argv[at + 1] + 0, argv[at + 2] + 0, argv[at + 3] + 0
-- The end of a period that begins now, or of the present one.
local ends, used, is_new = now + period, 0, true
if kind ~= 'i' then
  ends = argv[at + 4] + 0
  if now >= ends then ends = ends + (floor((now - ends) / period) + 1) * period end
end
if state then
  if #state ~= 16 then return redis.error_reply(ours) end
  local since
  since, used = struct.unpack('>I8I8', state)
  is_new = false
  if used > OWED or since >= EXACT then return redis.error_reply(ours) end
  if since > now + 2 * period then
    healed = true
  elseif now < since then
    if kind ~= 'i' or used > 0 then ends = since end
  else
    local passed, full = floor((now - since) / period) + 1, ceil(used / batch)
    if passed < full then
      used, ends = used - passed * batch, since + passed * period
    else
      used, is_new = 0, passed > full
    end
  end
end
if is_new and kind == 'A' then
  -- A new key starts with a share of a batch.
  local share = floor(min(ends - now, period) * batch / period)
  used = capacity - min(capacity, max(0, capacity - batch) + share)
end
if ask == 'refund' and state and not (is_new and kind == 'A') and b < ends and b >= ends - period then
  back = min(a, used)
  used = used - back
end
space = max(0, OWED - used)
room = max(0, capacity - used)
-- The decision is between these two parts.
used = used + add
if add > 0 or back > 0 or (healed and ask ~= 'peek') then
  local periods = ceil(used / batch)
  if kind ~= 'A' then periods = max(0, periods - 1) end
  local lives = min(ends - now + periods * period, LAST)
  call('SET', key, struct.pack('>I8I8', ends, used), 'PX', ceil(lives / 1000) + margin)
end
r1, r2 = ends, used
