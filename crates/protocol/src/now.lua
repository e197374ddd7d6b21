local EXACT, LAST = 9007199254740992, 4503599627370496
local argv, call, floor, ceil, min, max = ARGV, redis.call, math.floor, math.ceil, math.min, math.max
local now
if argv[1] == '' then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = argv[1] + 0
end
if now > LAST then now = LAST end
