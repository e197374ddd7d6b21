-- Checks one key of a limiter at the server's time. It decides as the script of all questions does, with fewer arguments.
--
-- KEYS  the state of each limit
-- ARGV  the units; then for each limit its numbers
-- Reply units granted, time; then the numbers of each limit. Each is a number of 8 bytes, because a client reads one text in a
--       third of the time that it takes for a list
local EXACT, LAST, OWED = 9007199254740992, 4503599627370496, 4503599627370496
local argv, call, floor, ceil, min, max = ARGV, redis.call, math.floor, math.ceil, math.min, math.max
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
if now > LAST then now = LAST end
local ask, a, b, timed, ours = 'check', argv[1] + 0, nil, false, 'NOTOURS a key holds no state of a limiter'
local granted, cost, units = 0, 0, nil
