-- Answers one question about one key of a limiter. The module `model` does the same in Rust and documents it; tests compare
-- the two. All numbers are whole and below 2^53, or are only compared. The script reads and checks everything before it writes.
--
-- KEYS  the state of each limit; for a post, then the posts of each limit
-- ARGV  the time in microseconds, or empty for the server's time; the question; the milliseconds that keys live longer than
--       necessary; the question's first number; then for each limit its numbers, or in the form for any limits its kind and
--       four numbers; then the question's two other numbers, if it has them
-- Reply units granted, time; then the numbers of each limit
--
-- The text of a kind has two parts. The first reads the state from `key`, and the limit's numbers from `at + 1` on. It sets
-- `room`, the units left; `space`, the units that a charge may add at most; `back`, the units that a refund gives back; and
-- `healed`, whether the state was moved back from the future. The second part writes `add` units, and sets the numbers of the
-- reply, `r1` to `r4`. `+ 0` converts a text to a number.
local OWED = 4503599627370496
local ask, margin, a, b, c = argv[2], argv[3], argv[4] + 0, nil, nil
if ask == 'refund' or ask == 'lease' or ask == 'post' then b, c = argv[#argv - 1] + 0, argv[#argv] + 0 end
local timed, ours = argv[1] ~= '', 'NOTOURS a key holds no state of a limiter'
-- The units that this call charged or gave back, the units that the caller waits for, and the units to charge.
local granted, cost, units = 0, 0, nil
