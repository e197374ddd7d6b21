
-- Minimum spacing.
--   state = time of the last charge, turn of its event, earliest turn of the next event
local function read_spacing(limit)
  local state, spacing = call('GET', limit.key), argv[limit.at + 1] + 0
  local came, turn, next = 0, 0, 0
  if state then
    came, turn, next = match(state, '^(%d+) (%d+) (%d+)$')
    if not came then return nil end
    came, turn, next = came + 0, turn + 0, next + 0
    if came > now + spacing then
      turn, next = now + max(0, turn - came), now + max(0, next - came)
      came, limit.healed = now, true
    end
  end
  if ask == 'refund' and a > 0 and came == b and next > now and next > turn then
    limit.back, next = a, turn
  end
  limit.spacing, limit.came, limit.turn, limit.next = spacing, came, turn, next
  limit.space = a
  if max(next, now) + spacing >= EXACT then limit.space = 0 end
  if next <= now then return EXACT end
  return 0
end

local function end_spacing(limit)
  local came, turn, next, add = limit.came, limit.turn, limit.next, limit.add
  local delay = 0
  if add > 0 then
    came, turn = now, max(next, now)
    next, delay = turn + limit.spacing, turn - now
  end
  if add > 0 or limit.back > 0 or (limit.healed and ask ~= 'peek') then
    local lives = ceil(max(0, next - now, came - now) / 1000) + margin
    call('SET', limit.key, format('%.0f %.0f %.0f', came, turn, next), 'PX', lives)
  end
  local wait = max(0, next - now)
  add_to_reply(wait == 0 and 1 or 0, wait, wait, delay)
end
