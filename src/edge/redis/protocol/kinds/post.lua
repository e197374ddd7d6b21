
-- A post: `a` is the process, `b` the epoch, and `c` the units that the process admitted in this epoch.
--   posts = process -> epoch, total, time, previous epoch, its total
local match, KEPT = string.match, 3600000000

-- Returns the units that a post adds to those of its process, and the new record of that process.
local function posted(known)
  if not known then return c, c > 0 and { b, c } end
  local epoch, total, before, sum
  epoch, total, before, sum = match(known, '^(%d+) (%d+) %d+ (%S+) (%S+)$')
  if not epoch then return nil end
  epoch, total, before, sum = tonumber(epoch), tonumber(total), tonumber(before), tonumber(sum)
  local added, record = c, nil
  if b > epoch then
    record = { b, c, epoch, total }
  elseif b == epoch then
    added, record = c - total, { b, c, before, sum }
  elseif before == b then
    added, record = c - sum, { epoch, total, b, c }
  elseif before and before > b then
    added = 0
  else
    record = { epoch, total, b, c }
  end
  if added <= 0 then return 0, nil end
  return added, record
end

for i, limit in ipairs(limits) do
  if limit.space then
    local hash, at = KEYS[count + i], 5 * i
    local known = call('HGET', hash, argv[4])
    local units, record = posted(known)
    if not units then return redis.error_reply(ours) end
    local kept = KEPT
    if argv[at] == 'g' then
      kept = kept + ceil(argv[at + 3] / argv[at + 2])
    elseif argv[at] == 'f' then
      kept = kept + argv[at + 2]
    else
      kept = kept + 2 * argv[at + 2]
    end
    if record then
      limit.record, limit.kept, limit.gone = record, kept, {}
      if not known then
        -- Processes come and go: remove those that have not posted for this long.
        local all = call('HGETALL', hash)
        for j = 1, #all, 2 do
          local at = tonumber(match(all[j + 1], '^%d+ %d+ (%d+) ') or 0)
          if now - at > kept then table.insert(limit.gone, all[j]) end
        end
      end
    end
    limit.add = min(units, limit.space)
    granted = max(granted, limit.add)
  end
end
for i, limit in ipairs(limits) do
  if limit.record then
    local record, hash, before = limit.record, KEYS[count + i], '- -'
    for _, process in ipairs(limit.gone) do call('HDEL', hash, process) end
    if record[3] then before = string.format('%.0f %.0f', record[3], record[4]) end
    call('HSET', hash, argv[4], string.format('%.0f %.0f %.0f ', record[1], record[2], now) .. before)
    call('PEXPIRE', hash, ceil(limit.kept / 1000) + margin)
  end
end
