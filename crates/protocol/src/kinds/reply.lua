
local reply = { granted, now }
for i = 1, count do finishes[i](adds[i], reply, #reply) end
return reply
