
-- Token buckets that refill in batches, and windows from first use, which a batch fills.
--   state = end of the period, units used
local function read_batches(limit)
  local at, kind, state = limit.at, limit.kind, call('GET', limit.key)
  local capacity, period, batch, phase = argv[at + 1] + 0, argv[at + 2] + 0, argv[at + 3] + 0, argv[at + 4] + 0
  limit.period, limit.batch = period, batch
  -- The end of a period that begins now, or of the present one.
  local ends, used, is_new = now + period, 0, true
  if kind ~= 'i' then
    ends = phase
    if now >= phase then ends = phase + (floor((now - phase) / period) + 1) * period end
  end
  local since
  if state then
    since, used = match(state, '^(%d+) (%d+)$')
    if not since then return nil end
    since, used, is_new = since + 0, used + 0, false
    if used > OWED or since >= EXACT then return nil end
    if since > now + 2 * period then
      limit.healed = true
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
    limit.back = min(a, used)
    used = used - limit.back
  end
  limit.ends, limit.used, limit.space = ends, used, max(0, OWED - used)
  return max(0, capacity - used)
end

local function end_batches(limit)
  local period, ends, used = limit.period, limit.ends, limit.used + limit.add
  if limit.add > 0 or limit.back > 0 or (limit.healed and ask ~= 'peek') then
    local periods = ceil(used / limit.batch)
    if limit.kind ~= 'A' then periods = max(0, periods - 1) end
    local lives = min(ends - now + periods * period, LAST)
    call('SET', limit.key, format('%.0f %.0f', ends, used), 'PX', ceil(lives / 1000) + margin)
  end
  reply[size + 1], reply[size + 2] = ends, used
  size = size + 2
end
