
-- Minimum spacing. Number: the spacing.
-- Reply: units left; time until the units that were asked fit, or until one fits if none is left; time until all units are
-- left; time until the turn of the units that this call charged.
--   state = time of the last charge | turn of its event | earliest turn of the next event, each a number of 8 bytes
local state, spacing = call('GET', key), argv[at + 1] + 0
local came, turn, next = 0, 0, 0
if state then
  if #state ~= 24 then return redis.error_reply(ours) end
  came, turn, next = struct.unpack('>I8I8I8', state)
  if max(came, turn, next) >= EXACT then return redis.error_reply(ours) end
  if came > now + spacing then
    turn, next = now + max(0, turn - came), now + max(0, next - came)
    came, healed = now, true
  end
end
if ask == 'refund' and a > 0 and came == b and next > now and next > turn then
  back, next = a, turn
end
if max(next, now) + spacing < EXACT then space = a end
if next <= now then room = EXACT end
-- The decision is between these two parts.
r4 = 0
if add > 0 then
  came, turn = now, max(next, now)
  next, r4 = turn + spacing, turn - now
end
if add > 0 or back > 0 or (healed and ask ~= 'peek') then
  local lives = ceil(max(0, next - now, came - now) / 1000) + margin
  call('SET', key, struct.pack('>I8I8I8', came, turn, next), 'PX', lives)
end
r1, r2 = 0, max(0, next - now)
if r2 == 0 then r1 = 1 end
r3 = r2
