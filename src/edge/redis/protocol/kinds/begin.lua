
-- What follows decides every kind of limit. The text has a part for each kind; see script.rs.
-- ARGV  for each limit its kind and four numbers; after the limits, the time of a charge, if the question is a refund
--         l       limit, period, -, -                     sliding log
--         p       limit, length of a part, parts, -       sub-window counter; P: strict
--         m       spacing, -, -, -                        minimum spacing
--         i       capacity, period, batch, -              units return in batches from first use
--         a       capacity, period, batch, phase          units return in batches, aligned; A: with an adaptive start
-- Reply for l, p and m: units left; time until the units that were asked fit, or until one fits if none is left; time
--       until all units are left; time until the turn of the units that this call charged
-- Reply for i and a: end of the period, units used
-- A kind's text has two parts. The first reads the state; it sets the units left (`room`), the units that a charge may
-- add at most (`space`), the units that a refund gives back (`back`), and `healed`. The second writes `add` units, and
-- sets the kind's numbers in the reply (`r1` to `r4`).
local min, max = math.min, math.max
local b, given = nil, argv[1] ~= ''
if ask == 'refund' then b = argv[#argv - 1] + 0 end
-- The units that this call charged or gave back, and the units that the caller waits for.
local granted, cost = 0, 0
