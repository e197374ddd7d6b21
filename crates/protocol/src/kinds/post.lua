
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

local records, kept, gone = {}, {}, {}
for i = 1, count do
  adds[i] = 0
  if spaces[i] then
    local hash, at = KEYS[count + i], 5 * i
    local known = call('HGET', hash, argv[4])
    local units, record = posted(known)
    if not units then return redis.error_reply(ours) end
    kept[i] = KEPT
    if argv[at] == 'g' then
      kept[i] = kept[i] + ceil(argv[at + 3] / argv[at + 2])
    elseif argv[at] == 'f' then
      kept[i] = kept[i] + argv[at + 2]
    else
      kept[i] = kept[i] + 2 * argv[at + 2]
    end
    if record and not known then
      -- Processes come and go: remove those that have not posted for this long.
      gone[i] = {}
      local all = call('HGETALL', hash)
      for j = 1, #all, 2 do
        local at = tonumber(match(all[j + 1], '^%d+ %d+ (%d+) ') or 0)
        if now - at > kept[i] then table.insert(gone[i], all[j]) end
      end
    end
    records[i], adds[i] = record, min(units, spaces[i])
    granted = max(granted, adds[i])
  end
end
for i = 1, count do
  local record, hash, before = records[i], KEYS[count + i], '- -'
  if record then
    for _, process in ipairs(gone[i] or {}) do call('HDEL', hash, process) end
    if record[3] then before = string.format('%.0f %.0f', record[3], record[4]) end
    call('HSET', hash, argv[4], string.format('%.0f %.0f %.0f ', record[1], record[2], now) .. before)
    call('PEXPIRE', hash, ceil(kept[i] / 1000) + margin)
  end
end
