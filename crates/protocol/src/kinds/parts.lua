
-- Sub-window counter of N parts; P is strict. Numbers: limit, length of a part, N. Reply: as for spacing.
--   state = index | current | before | oldest (8 bytes each), then N counts of 6 bytes
--   index: the newest part, and its count. before: the sum of the N - 1 parts before it. oldest: the part before those,
--   which only strict counters count. The count of part i, when it has ended, is at place i modulo N
local most, part, parts, strict = argv[at + 1] + 0, argv[at + 2] + 0, argv[at + 3] + 0, kind == 'P'
local index = floor(now / part)
local current, before, oldest, whole, state = 0, 0, 0, true, call('GETRANGE', key, 0, 31)
local stored, stored_count, stored_before, stored_oldest = index, 0, 0, 0

-- Returns the counts of `many` parts from `from` on.
local function counts(from, many)
  local place = from % parts
  local straight = min(many, parts - place)
  local text = call('GETRANGE', key, 32 + 6 * place, 31 + 6 * (place + straight))
  if straight < many then text = text .. call('GETRANGE', key, 32, 31 + 6 * (many - straight)) end
  return text
end

if state ~= '' then
  if #state ~= 32 then return redis.error_reply(ours) end
  stored, current, before, oldest = struct.unpack('>I8I8I8I8', state)
  if stored >= EXACT or current + before + oldest >= EXACT then return redis.error_reply(ours) end
  if call('STRLEN', key) ~= 32 + 6 * parts then return redis.error_reply(ours) end
  if stored > index + parts then
    current = current + before
    if strict then current = current + oldest end
    stored, before, oldest, healed = index, 0, 0, true
  else
    whole = false
  end
  if ask == 'refund' and floor(b / part) == stored and stored >= index then
    back = min(a, current)
    current = current - back
  end
  stored_count, stored_before, stored_oldest = current, before, oldest
  local gap = index - stored
  if gap > 0 then
    if gap > parts then
      whole, before, oldest = true, 0, 0
    elseif gap == parts then
      before, oldest = 0, current
    else
      local text, left = counts(stored + 1, gap), 0
      for i = 0, gap - 1 do
        oldest = struct.unpack('>I6', text, 6 * i + 1)
        left = left + oldest
      end
      before = before + current - left
    end
    current = 0
  else
    index = stored
  end
end
local history, used = parts - 1, current + before
if strict then history, used = parts, used + oldest end
-- Each count has six bytes.
space = max(0, 281474976710655 - current - before - oldest)
room = max(0, most - used)
-- The decision is between these two parts.
current, used = current + add, used + add
local left, units, ends = max(0, most - used), 0, history + 1
if cost > left and cost <= most then units = cost elseif left == 0 then units = 1 end
r1, r2, r3, r4 = left, 0, 0, 0
if units > 0 then
  -- The part whose end makes room for these units, from the state before the call.
  local from, excess, freed, found = index - history, used + units - most, 0, index
  if not whole then
    if from < stored then
      local text = counts(from, stored - from)
      for i = 1, #text, 6 do
        freed = freed + struct.unpack('>I6', text, i)
        if freed >= excess then
          found = from
          break
        end
        from = from + 1
      end
    end
    if freed < excess and stored < index and from == stored and freed + stored_count >= excess then found = stored end
  end
  r2 = (found + ends) * part - now
end
if current > 0 then
  r3 = (index + ends) * part - now
elseif used > 0 then
  -- The newest part with units.
  local found, from = index, index - history
  if stored < index and stored >= from and stored_count > 0 then
    found = stored
  else
    local text, place = counts(from, stored - from), stored
    for i = #text - 5, 1, -6 do
      place = place - 1
      if struct.unpack('>I6', text, i) > 0 then
        found = place
        break
      end
    end
  end
  r3 = (found + ends) * part - now
end
if back > 0 and not healed then
  call('SETRANGE', key, 0, struct.pack('>I8I8I8I8', stored, stored_count, stored_before, stored_oldest))
elseif add > 0 or (healed and ask ~= 'peek') then
  local header, lives = struct.pack('>I8I8I8I8', index, current, before, oldest), nil
  if whole or index > stored or timed then lives = ceil(((index + parts + 1) * part - now) / 1000) + margin end
  if whole then
    call('SET', key, header .. string.rep(struct.pack('>I6', 0), parts), 'PX', lives)
  else
    if index > stored then
      -- The part that ended, and the parts without units after it.
      local place, text = stored % parts, struct.pack('>I6', stored_count) .. string.rep(struct.pack('>I6', 0), index - stored - 1)
      local straight = 6 * (parts - place)
      call('SETRANGE', key, 32 + 6 * place, string.sub(text, 1, straight))
      if #text > straight then call('SETRANGE', key, 32, string.sub(text, straight + 1)) end
    end
    call('SETRANGE', key, 0, header)
    if lives then call('PEXPIRE', key, lives) end
  end
end
