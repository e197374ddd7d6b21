-- Answers one question about one key at the server of a region. The module `region::model` does the same in Rust and documents
-- it; tests compare the two. All numbers are whole and below 2^53, or are only compared.
--
-- KEYS  the state of one limit
-- ARGV  the time in microseconds, or empty for the server's time; the milliseconds that the key lives longer than necessary;
--       the kind (f fixed, s sliding, S strict), the limit, the period, the unit of time in weights; the policy; the weights of
--       the regions before this region, with this region, and of all; the pause; the quantum; the number of other regions, and
--       their names; the question, and its words:
--         peek | check cost | post process epoch total | tell from index total before
--         hear from round index total before index-of-floor floor floor-before
-- State w         index; counted and floor, in this window and before; base; renewed?; time of the renewal; round; next
--       p process, r region
--                 the newest window and its total, the totals of two windows before; for regions: round heard, window and total
--                 that the region knows
-- Reply units granted, time, index, own, own before, used, room, round, two totals of the region that asked
local key = KEYS[1]
local kind, limit, period, unit = argv[3], argv[4] + 0, argv[5] + 0, argv[6] + 0
local slides = kind ~= 'f'
local from, to, of = argv[8] + 0, argv[9] + 0, argv[10] + 0
local pause, quantum, count = argv[11] + 0, argv[12] + 0, argv[13] + 0
local at = 14 + count
local ask = argv[at]
local ours = 'NOTOURS a key holds no state of a limiter'

-- Returns the numbers of a text, or nil if there are not that many.
local function numbers(text, many)
  local all = {}
  for word in string.gmatch(text, '%S+') do
    local number = tonumber(word)
    if not number then return nil end
    all[#all + 1] = number
  end
  if #all ~= many then return nil end
  return all
end

local function text(all)
  local words = {}
  for i = 1, #all do words[i] = string.format('%.0f', all[i]) end
  return table.concat(words, ' ')
end

-- A report is { newest, total, before, two before, heard, window known, total known }.
local function total(report, index)
  local age = report[1] - index
  if age < 0 or age > 2 then return 0 end
  return report[2 + age]
end

local function merge(report, index, units, before)
  local newest = max(report[1], index)
  local other = { index, units, before, 0 }
  local merged = {}
  for age = 0, 2 do
    merged[age + 1] = max(total(report, newest - age), total(other, newest - age))
  end
  report[1], report[2], report[3], report[4] = newest, merged[1], merged[2], merged[3]
end

local fields = { 'w' }
for i = 1, count do fields[i + 1] = 'r' .. argv[13 + i] end
local process
if ask == 'post' then
  process = 'p' .. argv[at + 1]
  fields[count + 2] = process
elseif ask == 'tell' or ask == 'hear' then
  fields[count + 2] = 'r' .. argv[at + 1]
end
local stored = call('HMGET', key, unpack(fields))

local present = floor(now / period)
local w = { present, 0, 0, 0, 0, 0, 0, now, 0, 0 }
if stored[1] then
  w = numbers(stored[1], 10)
  if not w then return redis.error_reply(ours) end
end
local reports, others, asker = {}, {}, nil
for i = 2, #fields do
  local report = reports[fields[i]]
  if not report then
    report = { 0, 0, 0, 0, 0, 0, 0 }
    if stored[i] then
      report = numbers(stored[i], 7)
      if not report then return redis.error_reply(ours) end
      report.is_known = true
    end
    reports[fields[i]] = report
  end
  if i <= count + 1 then others[i - 1] = report else asker = report end
end

local writes = false
if w[1] > present + 1 then
  w[1], w[10], writes = present, 0, true
elseif w[1] < present then
  local counted, back = 0, 0
  if w[1] + 1 == present then counted, back = w[2], w[3] end
  w = { present, 0, 0, counted, back, 0, 0, max(w[8], w[9], now), w[9], w[10] }
end
local index = w[1]
local into = 0
if index == present then into = now % period end
local to_end = ceil((period - into) / unit)

local function weigh(units)
  if not slides or units == 0 or index == 0 then return 0 end
  local product, whole = units * to_end, period / unit
  if product >= EXACT then return EXACT end
  if kind == 'S' then return ceil(product / whole) end
  return floor(product / whole)
end

local function part(units)
  return floor(units * to / of) - floor(units * from / of)
end

-- Returns the own total, all units that count, the room, and the own total that every other region knows.
local function tally()
  local own, before = max(w[2], w[3]), max(w[4], w[5])
  local known, acked = 0, EXACT
  local all_before = before
  for i = 1, count do
    local other = others[i]
    known = known + total(other, index)
    if index > 0 then all_before = all_before + total(other, index - 1) end
    local ack = 0
    if other[6] == index then ack = other[7] end
    acked = min(acked, ack)
  end
  local weighed = weigh(all_before)
  local used = own + known + weighed
  local room = max(0, limit - used)
  if argv[7] == 'share' then
    local rest = max(0, limit - w[6] - known - weighed)
    room = min(room, max(0, w[6] + part(rest) - own))
    if slides and w[7] == 0 then
      room = min(room, max(0, part(limit) - own - weigh(before)))
    end
  end
  if count == 0 then acked = 0 end
  return own, used, room, acked
end

-- Learns what the asking region admitted: a window, its total, and the total of the window before. Returns the window.
local function learn(at)
  local said, before = argv[at] + 0, 0
  writes = true
  if said <= index + 1 then
    if said > 0 then before = argv[at + 2] + 0 end
    merge(asker, said, min(argv[at + 1] + 0, LAST), min(before, LAST))
    asker.is_known = true
  end
  return said
end

local granted, known, known_before = 0, 0, 0
local gone = {}
if ask == 'check' then
  local cost = argv[at + 1] + 0
  local _, _, room = tally()
  if cost <= room then
    granted = cost
    w[2] = w[2] + cost
  end
elseif ask == 'post' then
  local epoch, sum = argv[at + 2] + 0, argv[at + 3] + 0
  if sum > 0 and (epoch == index or (slides and epoch + 1 == index)) then
    local posted = total(asker, epoch)
    merge(asker, epoch, sum, 0)
    local which = 2
    if epoch < index then which = 4 end
    granted = max(0, min(total(asker, epoch) - posted, LAST - w[which]))
    w[which] = w[which] + granted
    if granted > 0 and not asker.is_known then
      -- Processes come and go: remove those whose windows are over.
      local all = call('HGETALL', key)
      for i = 1, #all, 2 do
        if string.sub(all[i], 1, 1) == 'p' then
          local report = numbers(all[i + 1], 7)
          if report and total(report, index) + total(report, index - 1) == 0 then table.insert(gone, all[i]) end
        end
      end
    end
  end
elseif ask == 'tell' then
  local said = learn(at + 2)
  known = total(asker, said)
  if said > 0 then known_before = total(asker, said - 1) else known_before = known end
elseif ask == 'hear' then
  local round, own_index = argv[at + 2] + 0, argv[at + 6] + 0
  learn(at + 3)
  for age = 0, 1 do
    local which
    if own_index - age == index then which = 3 elseif own_index - age + 1 == index then which = 5 end
    if which then w[which] = max(w[which], min(argv[at + 7 + age] + 0, LAST)) end
  end
  if asker.is_known and round <= w[9] then
    asker[5] = max(asker[5], round)
    local acked = argv[at + 7] + 0
    if own_index > asker[6] or (own_index == asker[6] and acked > asker[7]) then
      asker[6], asker[7] = own_index, acked
    end
  end
  local all = true
  for i = 1, count do all = all and others[i][5] > w[8] end
  if all then
    w[6], w[7], w[8] = max(w[2], w[3]), 1, max(w[9], now)
  end
end

local own, used, room, acked = tally()
local round = 0
if ask ~= 'tell' and ask ~= 'hear' then
  local grew = own - acked
  local is_worth = grew >= quantum or (grew > 0 and (acked == 0 or room < quantum))
  local is_hungry = room == 0 and used < limit
  local is_time = now >= w[10] or w[10] > now + 2 * pause
  if count > 0 and is_time and (is_worth or is_hungry) then
    round = max(now, w[9] + 1, w[8] + 1)
    w[9], w[10] = round, now + pause
  end
end

if writes or granted > 0 or round > 0 then
  for i = 1, #gone do call('HDEL', key, gone[i]) end
  call('HSET', key, 'w', text(w))
  if asker and (granted > 0 or (ask ~= 'post' and asker.is_known)) then
    call('HSET', key, fields[count + 2], text(asker))
  end
  -- A total of the next window counts until the window after it is over.
  call('PEXPIRE', key, ceil(((index + 3) * period - now) / 1000) + argv[2])
end
return { granted, now, index, own, max(w[4], w[5]), used, room, round, known, known_before }
