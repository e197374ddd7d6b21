
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
local match, format, min, max, rep = string.match, string.format, math.min, math.max, string.rep
local pack, unpack = struct.pack, struct.unpack
local count = floor((#argv - 4) / 5)
local b = tonumber(argv[5 * count + 5])
local given = argv[1] ~= ''
-- The units that this call charged or gave back, and the units that the caller waits for.
local granted, cost, size, reply = 0, 0, 2, nil

local function add_to_reply(left, wait, reset, delay)
  reply[size + 1], reply[size + 2], reply[size + 3], reply[size + 4] = left, wait, reset, delay
  size = size + 4
end

local function wanted(left, most)
  if cost > left and cost <= most then return cost end
  if left == 0 then return 1 end
  return 0
end
