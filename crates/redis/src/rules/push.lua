-- KEYS: the hash, its history.
-- ARGV: the version that the caller saw, or "any"; a new store; sha256, bytes, by, format, text.
local seen = ARGV[1]
local now = redis.call('TIME')[1]
local had = redis.call('HMGET', KEYS[1], 'version', 'store', 'sha256', 'format', 'pushed_at', 'by', 'text')
local known = had[1] and string.match(had[1], '^%d+$')
local version = tonumber(known or '0')
if seen ~= 'any' and tonumber(seen) ~= version then
  return {'0', string.format('%d', version), had[6] or '', had[5] or ''}
end
-- Numbers that start again belong to a new store: in the same one, readers refuse lower numbers.
local store = had[2]
if not known or not store or store == '' then store = ARGV[2] end
if had[7] then
  for at = 1, 6 do had[at] = had[at] or '' end
  redis.call('LPUSH', KEYS[2], table.concat(had, '\n'))
  redis.call('LTRIM', KEYS[2], 0, 4)
end
local next = string.format('%d', version + 1)
redis.call('HSET', KEYS[1], 'version', next, 'store', store, 'sha256', ARGV[3], 'bytes', ARGV[4],
  'pushed_at', now, 'by', ARGV[5], 'format', ARGV[6], 'text', ARGV[7])
-- The message is only a hint, and the user may have no permission for it.
redis.pcall('PUBLISH', KEYS[1], next)
return {'1', next}
