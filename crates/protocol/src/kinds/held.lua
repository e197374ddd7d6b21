
local first, last = 0, 0
local ends = call('ZRANGE', book, 1, 1, 'WITHSCORES')
if ends[2] then first, last = ends[2] + 0, call('ZRANGE', book, -1, -1, 'WITHSCORES')[2] + 0 end
local reply = { granted, now, done, held, first, last }
for i = 1, count do finishes[i](adds[i], reply, #reply) end
return reply
