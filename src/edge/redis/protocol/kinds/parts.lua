
-- Sub-window counter of N parts.
--   state = index | current | before | oldest (8 bytes each), then N counts of 6 bytes
--   index: the newest part, and its count. before: the sum of the N - 1 parts before it. oldest: the part before those,
--   which only strict counters count. The count of part i, when it has ended, is at place i modulo N
local MOST_UNITS, COUNT = 281474976710655, '>I6'

-- Returns the counts of `many` parts from `part` on.
local function counts(limit, part, many)
  local place = part % limit.parts
  local straight = min(many, limit.parts - place)
  local text = call('GETRANGE', limit.key, 32 + 6 * place, 31 + 6 * (place + straight))
  if straight < many then text = text .. call('GETRANGE', limit.key, 32, 31 + 6 * (many - straight)) end
  return text
end

local function read_parts(limit)
  local at, key, strict = limit.at, limit.key, limit.kind == 'P'
  local most, part, parts = argv[at + 1] + 0, argv[at + 2] + 0, argv[at + 3] + 0
  limit.most, limit.part, limit.parts = most, part, parts
  local present = floor(now / part)
  local index, current, before, oldest, gap = present, 0, 0, 0, 0
  local state = call('GETRANGE', key, 0, 31)
  limit.whole = true
  if state ~= '' then
    if #state ~= 32 then return nil end
    index, current, before, oldest = unpack('>I8I8I8I8', state)
    if index >= EXACT or current + before + oldest >= EXACT then return nil end
    if call('STRLEN', key) ~= 32 + 6 * parts then return nil end
    if index > present + parts then
      current = current + before
      if strict then current = current + oldest end
      index, before, oldest, limit.healed = present, 0, 0, true
    else
      limit.whole = false
    end
    if ask == 'refund' and floor(b / part) == index then
      limit.back = min(a, current)
      current = current - limit.back
    end
    limit.stored, limit.stored_count, limit.stored_before, limit.stored_oldest = index, current, before, oldest
    gap = present - index
    if gap > 0 then
      if gap > parts then
        limit.whole, before, oldest = true, 0, 0
      elseif gap == parts then
        before, oldest = 0, current
      else
        local text, left = counts(limit, index + 1, gap), 0
        for i = 0, gap - 1 do
          oldest = unpack(COUNT, text, 6 * i + 1)
          left = left + oldest
        end
        before = before + current - left
      end
      index, current = present, 0
    end
  end
  limit.index, limit.current, limit.before, limit.oldest = index, current, before, oldest
  limit.history, limit.used = parts - 1, current + before
  if strict then limit.history, limit.used = parts, limit.used + oldest end
  limit.space = max(0, MOST_UNITS - current - before - oldest)
  return max(0, most - limit.used)
end

-- Returns the part whose end makes room for `excess` units, from the state before the call.
local function part_of(limit, excess)
  local index, stored, freed = limit.index, limit.stored, 0
  local part = index - limit.history
  if limit.whole then return index end
  if part < stored then
    local text = counts(limit, part, stored - part)
    for i = 1, #text, 6 do
      freed = freed + unpack(COUNT, text, i)
      if freed >= excess then return part end
      part = part + 1
    end
  end
  if stored < index and part == stored and freed + limit.stored_count >= excess then return stored end
  return index
end

-- Returns the newest part with units.
local function newest_of(limit)
  local index, stored = limit.index, limit.stored
  local part = index - limit.history
  if stored < index and stored >= part and limit.stored_count > 0 then return stored end
  local text = counts(limit, part, stored - part)
  for i = #text - 5, 1, -6 do
    stored = stored - 1
    if unpack(COUNT, text, i) > 0 then return stored end
  end
  return index
end

local function end_parts(limit)
  local key, part, parts, most, add, back = limit.key, limit.part, limit.parts, limit.most, limit.add, limit.back
  local index, stored, current, used = limit.index, limit.stored, limit.current + add, limit.used + add
  local left, wait, reset = max(0, most - used), 0, 0
  local units, ends = wanted(left, most), limit.history + 1
  if units > 0 then wait = (part_of(limit, used + units - most) + ends) * part - now end
  if current > 0 then
    reset = (index + ends) * part - now
  elseif used > 0 then
    reset = (newest_of(limit) + ends) * part - now
  end
  local lives = ceil(((index + parts + 1) * part - now) / 1000) + margin
  if back > 0 and not limit.healed then
    local header = pack('>I8I8I8I8', stored, limit.stored_count, limit.stored_before, limit.stored_oldest)
    call('SETRANGE', key, 0, header)
  elseif add > 0 or (limit.healed and ask ~= 'peek') then
    local header = pack('>I8I8I8I8', index, current, limit.before, limit.oldest)
    if limit.whole then
      call('SET', key, header .. rep(pack(COUNT, 0), parts), 'PX', lives)
    else
      if index > stored then
        -- The part that ended, and the parts without units after it.
        local place, text = stored % parts, pack(COUNT, limit.stored_count) .. rep(pack(COUNT, 0), index - stored - 1)
        local straight = 6 * (parts - place)
        call('SETRANGE', key, 32 + 6 * place, string.sub(text, 1, straight))
        if #text > straight then call('SETRANGE', key, 32, string.sub(text, straight + 1)) end
      end
      call('SETRANGE', key, 0, header)
      if index > stored or given then call('PEXPIRE', key, lives) end
    end
  end
  add_to_reply(left, wait, reset, 0)
end
