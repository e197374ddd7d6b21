-- Carries out one step of the copy of a key's states to another server. `CopyStep` in mod.rs describes the steps.
--
-- KEYS  the state of each limit; then the mark of each limit, which says that its state was copied
-- ARGV  find, or read, or write; to write, then for each limit the text of its state, and its life in milliseconds. The life 0
--       means that there is no state
-- Reply find: whether each limit has a state or a mark; read: for each limit the text and the life, which is negative if there
--       is no state; write: 1
local call, step, count = redis.call, ARGV[1], #KEYS / 2
local reply = {}
for i = 1, count do
  local key, mark = KEYS[i], KEYS[count + i]
  if step == 'find' then
    if call('PTTL', key) == -2 and call('PTTL', mark) == -2 then return 0 end
  elseif step == 'read' then
    reply[2 * i - 1], reply[2 * i] = call('GET', key) or '', call('PTTL', key)
  else
    local text, life = ARGV[2 * i], ARGV[2 * i + 1]
    if life ~= '0' and call('SET', mark, '', 'NX', 'PX', life) then call('SET', key, text, 'NX', 'PX', life) end
  end
end
if step == 'read' then return reply end
return 1
