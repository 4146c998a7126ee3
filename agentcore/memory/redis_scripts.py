"""The scripts of RedisChatMemory: each is one step for everybody else, and goes by the server's clock.

All get the same keys, in the order of `KEYS`. Of a conversation: a head (hash: version, fence, cuts, owner, until,
request, created, updated, parent, parent_seq), a log (stream, ids `<seq>-0`: a number that comes twice is an error),
places (hash: turn, NUL, position → seq), system messages (hash: seq → body) and records (hash: kind, NUL, key →
`expires|at|seq|body`). Of the namespace: three lists of ids by time, which are right at every moment because the same
scripts write them, and the floor: the highest numbers of what is forgotten to the last trace, since none of them is
given twice.
"""

KEYS = ("head", "log", "places", "system", "records")
LISTS = ("updated", "created", "traces", "floor")

_HEAD = """
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000
local function stamp(value) return string.format('%.6f', value) end
local function number(name) return tonumber(redis.call('HGET', KEYS[1], name) or '0') end
local function floor(name) return tonumber(redis.call('HGET', KEYS[9], name) or '0') end
local function begin()
    if redis.call('EXISTS', KEYS[1]) == 0 then
        redis.call('HSET', KEYS[1], 'fence', floor('fence'), 'updated', stamp(now))
    end
end
local function settle()  -- which lists the conversation is on
    local created = redis.call('HGET', KEYS[1], 'created')
    if created or redis.call('EXISTS', KEYS[5]) == 1 then
        redis.call('ZADD', KEYS[6], redis.call('HGET', KEYS[1], 'updated'), ARGV[1])
        redis.call('ZREM', KEYS[8], ARGV[1])
    else
        redis.call('ZREM', KEYS[6], ARGV[1])
        redis.call('ZADD', KEYS[8], stamp(now), ARGV[1])
    end
    if created then redis.call('ZADD', KEYS[7], created, ARGV[1]) else redis.call('ZREM', KEYS[7], ARGV[1]) end
end
local function lives(value)
    local expires = string.match(value, '^[^|]*')
    return expires == '' or tonumber(expires) > now
end
"""

# ARGV id, turn, position, fence ('' = none), expected ('' = any), then role and body pairs.
# Returns {'ok', version} | {'held', version, bodies} | {'lost'} | {'conflict', version}
APPEND = (
    _HEAD
    + """
local size, version, held = (#ARGV - 5) / 2, number('version'), {}
for place = 0, size - 1 do
    local seq = redis.call('HGET', KEYS[3], ARGV[2] .. '\\0' .. (tonumber(ARGV[3]) + place))
    if seq then held[#held + 1] = redis.call('XRANGE', KEYS[2], seq .. '-0', seq .. '-0')[1][2][10] end
end
if #held > 0 then return {'held', tostring(version), held} end
if ARGV[4] ~= '' and (redis.call('HGET', KEYS[1], 'fence') ~= ARGV[4]
    or redis.call('HEXISTS', KEYS[1], 'until') == 0) then
    return {'lost'}
end
if ARGV[5] ~= '' and tostring(version) ~= ARGV[5] then return {'conflict', tostring(version)} end
if size == 0 then return {'ok', tostring(version)} end
begin()
if version == 0 then version = floor('version') end
for place = 0, size - 1 do
    version = version + 1
    local role, body = ARGV[6 + 2 * place], ARGV[7 + 2 * place]
    local position = tonumber(ARGV[3]) + place
    redis.call('XADD', KEYS[2], version .. '-0',
        'turn', ARGV[2], 'position', position, 'role', role, 'at', stamp(now), 'body', body)
    redis.call('HSET', KEYS[3], ARGV[2] .. '\\0' .. position, version)
    if role == 'system' then redis.call('HSET', KEYS[4], version, body) end
end
redis.call('HSET', KEYS[1], 'version', version, 'updated', stamp(now))
redis.call('HSETNX', KEYS[1], 'created', stamp(now))
settle()
return {'ok', tostring(version)}
"""
)

# ARGV id, after, how many at most, 'bodies' | 'whole'. A piece: it ends early where the bodies are large.
# Returns, packed: version, cuts, the last seq, whether there is more, and of each entry its body or all its texts.
READ = """
local seq, left, size, found, more = tonumber(ARGV[2]), tonumber(ARGV[3]), 0, {}, true
while more and left > 0 and size < 4000000 do
    local count = math.min(left, 20)
    local entries = redis.call('XRANGE', KEYS[2], string.format('%d-0', seq + 1), '+', 'COUNT', count)
    for _, entry in ipairs(entries) do
        local texts = entry[2]
        seq = tonumber(string.match(entry[1], '^%d+'))
        if ARGV[4] == 'whole' then
            found[#found + 1] = tostring(seq)
            found[#found + 1] = texts[2]
            found[#found + 1] = texts[4]
            found[#found + 1] = texts[8]
        end
        found[#found + 1] = texts[10]
        size = size + #texts[10]
    end
    left, more = left - #entries, #entries == count
end
local head = redis.call('HMGET', KEYS[1], 'version', 'cuts')
return cmsgpack.pack({head[1] or '0', head[2] or '0', tostring(seq), more, found})
"""

# ARGV id, count. Returns, packed: bodies, newest first; and seqs and bodies of the system messages from before them.
TAIL = """
local bodies, systems, first = {}, {}, nil
if ARGV[2] ~= '0' then
    for place, entry in ipairs(redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', ARGV[2])) do
        bodies[place], first = entry[2][10], tonumber(string.match(entry[1], '^%d+'))
    end
end
local all = redis.call('HGETALL', KEYS[4])
for place = 1, #all, 2 do
    if not first or tonumber(all[place]) < first then
        systems[#systems + 1] = all[place]
        systems[#systems + 1] = all[place + 1]
    end
end
return cmsgpack.pack({bodies, systems})
"""

# ARGV id, owner, seconds, steal. Returns {fence, version} or nil.
TAKE_LEASE = (
    _HEAD
    + """
if ARGV[4] == '0' and number('until') > now and redis.call('HGET', KEYS[1], 'owner') ~= ARGV[2] then return nil end
begin()
local fence = redis.call('HINCRBY', KEYS[1], 'fence', 1)
redis.call('HSET', KEYS[1], 'owner', ARGV[2], 'until', stamp(now + tonumber(ARGV[3])))
settle()
return {fence, number('version')}
"""
)
# ARGV id, fence, seconds. Returns 1 or 0.
RENEW_LEASE = (
    _HEAD
    + """
if redis.call('HGET', KEYS[1], 'fence') ~= ARGV[2] or redis.call('HEXISTS', KEYS[1], 'until') == 0 then return 0 end
redis.call('HSET', KEYS[1], 'until', stamp(now + tonumber(ARGV[3])))
return 1
"""
)
# ARGV id, fence.
RELEASE_LEASE = """
if redis.call('HGET', KEYS[1], 'fence') == ARGV[2] then redis.call('HDEL', KEYS[1], 'owner', 'until') end
return 1
"""

# ARGV id. Returns the fence of the lease whose holder is asked, or nil.
REQUEST_LEASE = (
    _HEAD
    + """
if number('until') <= now then return nil end
redis.call('HSET', KEYS[1], 'request', redis.call('HGET', KEYS[1], 'fence'))
return number('fence')
"""
)

# ARGV id, seconds ('' = whatever its age). Returns 1 if it had messages, 0 if not, -1 if it is kept.
CLEAR = (
    _HEAD
    + """
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
if ARGV[2] ~= '' and (number('until') > now or number('updated') >= now - tonumber(ARGV[2])) then return -1 end
local had = redis.call('HEXISTS', KEYS[1], 'created')
redis.call('HINCRBY', KEYS[1], 'fence', 1)
redis.call('HINCRBY', KEYS[1], 'cuts', 1)
redis.call('HDEL', KEYS[1], 'owner', 'until', 'created', 'parent', 'parent_seq')
redis.call('HSET', KEYS[1], 'updated', stamp(now))
redis.call('DEL', KEYS[2], KEYS[3], KEYS[4], KEYS[5])
settle()
return had
"""
)

# ARGV id, seconds. Removes the trace of a conversation that has been gone for so long. Returns 0, or -1 if it is kept.
PURGE = (
    _HEAD
    + """
local since = redis.call('ZSCORE', KEYS[8], ARGV[1])
if not since or tonumber(since) > now - tonumber(ARGV[2]) or number('until') > now then return -1 end
redis.call('HSET', KEYS[9], 'version', math.max(floor('version'), number('version')),
    'fence', math.max(floor('fence'), number('fence')))
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[8], ARGV[1])
return 0
"""
)

_CHANGED = """
local function changed(key, guard)  -- since it was read
    if guard == '' then return false end
    local head = redis.call('HMGET', key, 'version', 'cuts')
    return (head[1] or '0') .. '/' .. (head[2] or '0') ~= guard
end
"""

# ARGV id, to, guard ('' = whatever it is now). Returns 1, or 0 if it has changed.
ROLLBACK = (
    _HEAD
    + _CHANGED
    + """
if redis.call('EXISTS', KEYS[1]) == 0 then return 1 end
if changed(KEYS[1], ARGV[3]) then return 0 end
local to = tonumber(ARGV[2])
redis.call('HINCRBY', KEYS[1], 'fence', 1)
redis.call('HINCRBY', KEYS[1], 'cuts', 1)
redis.call('HDEL', KEYS[1], 'owner', 'until')
redis.call('HSET', KEYS[1], 'updated', stamp(now))
if to == 0 then
    -- With the last message go the beginning and the origin: what comes after is another conversation.
    redis.call('HDEL', KEYS[1], 'created', 'parent', 'parent_seq')
    redis.call('DEL', KEYS[2], KEYS[3], KEYS[4])
end
while true do
    local entries = redis.call('XRANGE', KEYS[2], string.format('%d-0', to + 1), '+', 'COUNT', 50)
    if #entries == 0 then break end
    for _, entry in ipairs(entries) do
        redis.call('XDEL', KEYS[2], entry[1])
        redis.call('HDEL', KEYS[3], entry[2][2] .. '\\0' .. entry[2][4])
        redis.call('HDEL', KEYS[4], string.match(entry[1], '^%d+'))
    end
end
local records = redis.call('HGETALL', KEYS[5])
for place = 1, #records, 2 do
    local seq = tonumber(string.match(records[place + 1], '^[^|]*|[^|]*|([^|]*)'))
    if seq and seq > to then redis.call('HDEL', KEYS[5], records[place]) end
end
settle()
return 1
"""
)

# The keys are those of the new one, then head, log and records of the other.
# ARGV new id, id, at ('' = its last message), guard ('' = whatever it is now).
# Returns 'nothing', 'changed', 'used' or ''.
FORK = (
    _HEAD
    + _CHANGED
    + """
local last = redis.call('XREVRANGE', KEYS[11], '+', '-', 'COUNT', 1)
if #last == 0 then return 'nothing' end
if changed(KEYS[10], ARGV[4]) then return 'changed' end
if redis.call('HEXISTS', KEYS[1], 'created') == 1 then return 'used' end
local at = tonumber(ARGV[3] ~= '' and ARGV[3] or string.match(last[1][1], '^%d+'))
begin()
local seq = 0
while seq < at do
    local entries = redis.call('XRANGE', KEYS[11], string.format('%d-0', seq + 1), at .. '-0', 'COUNT', 50)
    if #entries == 0 then break end
    for _, entry in ipairs(entries) do
        local texts = entry[2]
        seq = tonumber(string.match(entry[1], '^%d+'))
        redis.call('XADD', KEYS[2], entry[1], unpack(texts))
        redis.call('HSET', KEYS[3], texts[2] .. '\\0' .. texts[4], seq)
        if texts[6] == 'system' then redis.call('HSET', KEYS[4], seq, texts[10]) end
    end
end
local records = redis.call('HGETALL', KEYS[12])
for place = 1, #records, 2 do
    local about = tonumber(string.match(records[place + 1], '^[^|]*|[^|]*|([^|]*)'))
    if about and about <= at then redis.call('HSET', KEYS[5], records[place], records[place + 1]) end
end
redis.call('HSET', KEYS[1], 'version', math.max(number('version'), floor('version'), at),
    'created', stamp(now), 'updated', stamp(now), 'parent', ARGV[2], 'parent_seq', at)
settle()
return ''
"""
)

# ARGV id, name, body, seq ('' = none), expires in ('' = never), if absent. Returns 1 or 0.
PUT_RECORD = (
    _HEAD
    + """
if ARGV[6] == '1' then
    local kept = redis.call('HGET', KEYS[5], ARGV[2])
    if kept and lives(kept) then return 0 end
end
local expires = ''
if ARGV[5] ~= '' then expires = stamp(now + tonumber(ARGV[5])) end
begin()
redis.call('HSET', KEYS[5], ARGV[2], table.concat({expires, stamp(now), ARGV[4], ARGV[3]}, '|'))
settle()
return 1
"""
)
# ARGV id, name, or what names begin with; 'take' | 'get' | 'list'. Returns names and values that live; others go.
RECORDS = (
    _HEAD
    + """
local found, gone = {}, false
local function look(name, value)
    local alive = lives(value)
    if alive then
        found[#found + 1] = name
        found[#found + 1] = value
    end
    if not alive or ARGV[3] == 'take' then
        redis.call('HDEL', KEYS[5], name)
        gone = true
    end
end
if ARGV[3] == 'list' then
    local all = redis.call('HGETALL', KEYS[5])
    for place = 1, #all, 2 do
        if string.sub(all[place], 1, #ARGV[2]) == ARGV[2] then look(all[place], all[place + 1]) end
    end
else
    local value = redis.call('HGET', KEYS[5], ARGV[2])
    if value then look(ARGV[2], value) end
end
if gone then settle() end
return found
"""
)
