-- Merges what one process of a region saw of the calls to the other regions. The module `region::exchange` does the same in Rust
-- and documents it; tests compare the two.
--
-- KEYS  what the region knows
-- ARGV  the time in microseconds, or empty for the server's time; the milliseconds that the key lives; then for each other region
--       its name, and how long ago the first failed call, the last failed call and the last answer were, in microseconds plus 1.
--       0 means never
-- Reply the same three numbers for each region, of what all processes saw
-- State region -> times of the first failed call, of the last failed call, and of the last answer; 0 means never
local names, reply, fields, is_known = {}, {}, {}, false
for i = 3, #argv, 4 do names[#names + 1] = argv[i] end
local stored = call('HMGET', KEYS[1], unpack(names))

local function time(age)
  if age == '0' then return 0 end
  return max(1, now - (age - 1))
end

-- Returns the failed calls that are later than an answer.
local function after(first, last, answered)
  if first > answered then return first, last end
  if last > answered then return last, last end
  return 0, 0
end

for i = 1, #names do
  local at = 4 * i - 1
  local a, b, c = time(argv[at + 1]), time(argv[at + 2]), time(argv[at + 3])
  local first, last, answered = 0, 0, 0
  if stored[i] then
    first, last, answered = string.match(stored[i], '^(%d+) (%d+) (%d+)$')
    if not first then return redis.error_reply('NOTOURS a key holds no state of a limiter') end
    first, last, answered = first + 0, last + 0, answered + 0
  end
  answered = max(answered, c)
  a, b = after(a, b, answered)
  first, last = after(first, last, answered)
  if first == 0 then
    first, last = a, b
  elseif a > 0 then
    first, last = min(first, a), max(last, b)
  end
  fields[2 * i - 1], fields[2 * i] = names[i], string.format('%.0f %.0f %.0f', first, last, answered)
  for _, at in ipairs({ first, last, answered }) do
    if at == 0 then reply[#reply + 1] = 0 else reply[#reply + 1] = max(0, now - at) + 1 end
    is_known = is_known or at > 0
  end
end
if is_known then
  call('HSET', KEYS[1], unpack(fields))
  call('PEXPIRE', KEYS[1], argv[2])
end
return reply
