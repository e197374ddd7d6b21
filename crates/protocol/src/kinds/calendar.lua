
-- Windows of a calendar: c. Numbers: limit, and three times at which periods begin: the caller's own, the next one, and the one
-- after it. The server's time selects the period, so the caller's clock may be wrong by one. For a refund, they are those of the
-- charge.
-- Reply: end of the period, units used.
--   state = end of the period | units used, each a number of 8 bytes; the name of the key contains the calendar
local state, ends, used = call('GET', key), argv[at + 3] + 0, 0
if now < argv[at + 2] + 0 then ends = argv[at + 2] + 0 elseif now >= ends then ends = argv[at + 4] + 0 end
if now >= ends and ask ~= 'refund' then
  return redis.error_reply('CLOCK the clock of this process is a whole period behind the server')
end
if state then
  if #state ~= 16 then return redis.error_reply(ours) end
  local since
  since, used = struct.unpack('>I8I8', state)
  if used > OWED or since >= EXACT then return redis.error_reply(ours) end
  if since <= now then
    used = 0
  elseif since > max(ends, argv[at + 4] + 0) and now < ends then
    healed = true
  else
    ends = since
  end
end
if ask == 'refund' and ends == argv[at + 3] + 0 then
  back = min(a, used)
  used = used - back
end
space = max(0, OWED - used)
room = max(0, argv[at + 1] - used)
-- The decision is between these two parts.
used = used + add
if add > 0 or back > 0 or (healed and ask ~= 'peek') then
  call('SET', key, struct.pack('>I8I8', ends, used), 'PX', ceil((ends - now) / 1000) + margin)
end
r1, r2 = ends, used
