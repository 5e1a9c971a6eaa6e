-- `kong.db`: an object for each kind of entity, with Kong's methods.
local natives, cjson = ...
local error, getmetatable, ipairs, pairs = error, getmetatable, ipairs, pairs
local setmetatable, tostring, type, floor, null = setmetatable, tostring, type, math.floor, cjson.null
local concat, sort = table.concat, table.sort

-- Kong's numbers and names of errors.
local INVALID_PRIMARY_KEY, INVALID_OFFSET, INVALID_SIZE, INVALID_UNIQUE = 1, 7, 9, 10
local INVALID_FOREIGN_KEY = 16
local NAMES = {
  [INVALID_PRIMARY_KEY] = "invalid primary key",
  [INVALID_OFFSET] = "invalid offset",
  [INVALID_SIZE] = "invalid size",
  [INVALID_FOREIGN_KEY] = "invalid foreign key",
}
local MAX_SIZE, USUAL_SIZE = 1000, 1000
-- Kong's default workspace, the only one.
local WORKSPACE = natives.workspace

local error_meta = {
  __tostring = function(err)
    return ("[%s] %s"):format(err.strategy, err.message or err.name)
  end,
  __concat = function(a, b)
    return tostring(a) .. tostring(b)
  end,
}

-- The three values of a failure.
local function failed(err)
  err.strategy = natives.strategy()
  setmetatable(err, error_meta)
  return nil, tostring(err), err
end

local function refuse(code, message, fields, name)
  return failed({ code = code, name = name or NAMES[code], message = message, fields = fields })
end

local function is_uuid(text)
  return type(text) == "string" and #text == 36 and text:find("^%x+%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x+$") ~= nil
end

-- Fields as messages show them.
local function shown(fields)
  local parts = {}
  for name, value in pairs(fields) do
    parts[#parts + 1] = name .. "=" .. (type(value) == "string" and ('"%s"'):format(value) or tostring(value))
  end
  sort(parts)
  return "'{" .. concat(parts, ",") .. "}'"
end

local function with_nulls(options)
  return type(options) == "table" and options.nulls or false
end

-- The id of a primary key; nothing and an error if it is none.
local function id_of(key, code)
  if type(key) ~= "table" then
    error(code == INVALID_FOREIGN_KEY and "foreign_key must be a table" or "primary_key must be a table", 3)
  end
  if is_uuid(key.id) then
    return key.id
  end
  local what = code == INVALID_FOREIGN_KEY and "invalid foreign key: " or "invalid primary key: "
  local wrong = { id = key.id == nil and "missing primary key" or "expected a valid UUID" }
  return nil, { code = code, name = NAMES[code], message = what .. shown(wrong), fields = wrong }
end

local DAO = {}

function DAO:select(key, options)
  local id, err = id_of(key, INVALID_PRIMARY_KEY)
  if not id then
    return failed(err)
  end
  return natives.find(self.schema.name, { id = id }, with_nulls(options))
end

function DAO:page(size, offset, options)
  return self:_page({}, size, offset, options)
end

function DAO:_page(asked, size, offset, options)
  if size ~= nil then
    if type(size) ~= "number" then
      error("size must be a number", 3)
    end
    if floor(size) ~= size or size < 1 or size > MAX_SIZE then
      return refuse(INVALID_SIZE, "size must be an integer between 1 and " .. MAX_SIZE)
    end
  end
  if offset ~= nil then
    if type(offset) ~= "string" then
      error("offset must be a string", 3)
    end
    if not is_uuid(offset) then
      return refuse(INVALID_OFFSET, ("'%s' is not a valid offset: bad base64 encoding"):format(offset))
    end
  end
  options = options or {}
  asked.size, asked.after = size or USUAL_SIZE, offset
  asked.tags, asked.any_tag = options.tags, options.tags_cond == "or"
  local rows, following = natives.page(self.schema.name, asked, with_nulls(options))
  return rows, nil, nil, following
end

-- Goes through the pages that a function returns, entity by entity.
local function through(pages)
  local rows, at, following, page = {}, 0, nil, 0
  local ended = false
  return function()
    at = at + 1
    while rows[at] == nil do
      if ended then
        return nil
      end
      local err, err_t
      rows, err, err_t, following = pages(following)
      if not rows then
        ended, rows = true, {}
        return false, err, err_t
      end
      at, page, ended = 1, page + 1, following == nil
    end
    return rows[at], nil, page
  end
end

function DAO:each(size, options)
  return through(function(offset) return self:page(size, offset, options) end)
end

function DAO:cache_key(key, a, b, c, d, workspace)
  local schema = self.schema
  local values = { schema.name, "", "", "", "", "", workspace or WORKSPACE or "" }
  if type(key) == "string" then
    local given = { key, a, b, c, d }
    for i = 1, 5 do
      values[i + 1] = given[i] == nil and "" or tostring(given[i])
    end
    return concat(values, ":")
  end
  if type(key) ~= "table" then
    error("key must be a string or an entity table", 2)
  end
  values[7] = key.ws_id or values[7]
  for i, name in ipairs(schema.cache_key or schema.primary_key) do
    local value = key[name]
    if value == nil or value == null then
      value = ""
    elseif schema.fields[name].type == "foreign" then
      value = value.id
    end
    values[i + 1] = tostring(value)
  end
  return concat(values, ":")
end

-- The fields of a cache key, by their values.
local function of_cache_key(dao, key)
  local schema, values, fields = dao.schema, {}, {}
  for value in (key .. ":"):gmatch("([^:]*):") do
    values[#values + 1] = value
  end
  if values[1] ~= schema.name then
    return nil
  end
  for i, name in ipairs(schema.cache_key or schema.primary_key) do
    local value = values[i + 1]
    fields[name] = (value == nil or value == "") and null or value
  end
  return fields
end

function DAO:select_by_cache_key(key, options)
  if type(key) ~= "string" then
    error("cache_key must be a string", 2)
  end
  local fields = of_cache_key(self, key)
  return fields and natives.find(self.schema.name, fields, with_nulls(options)) or nil
end

-- What a write returns, as Kong returns it.
local function written(entity, err)
  if entity == nil then
    return failed(err)
  end
  return entity
end

local function write(dao, verb, key, entity, options)
  return written(natives.write(verb, dao.schema.name, key, entity, with_nulls(options)))
end

local function checked(entity)
  if type(entity) ~= "table" then
    error("entity must be a table", 3)
  end
  return entity
end

function DAO:insert(entity, options)
  return write(self, "insert", nil, checked(entity), options)
end

for _, verb in ipairs({ "update", "upsert" }) do
  DAO[verb] = function(self, key, entity, options)
    local id, err = id_of(key, INVALID_PRIMARY_KEY)
    if not id then
      return failed(err)
    end
    return write(self, verb, { id = id }, checked(entity), options)
  end
end

function DAO:delete(key, options)
  local id, err = id_of(key, INVALID_PRIMARY_KEY)
  if not id then
    return failed(err)
  end
  return write(self, "delete", { id = id }, nil, options)
end

-- Methods whose names have a field in them: `select_by_name`, `page_for_service`, `update_by_key`.
local function add_unique(methods, name)
  local function fields(value)
    if type(value) == "table" then
      value = value.id
    end
    if value == nil or value == null or type(value) == "table" then
      error(name .. " must be a string", 3)
    end
    return { [name] = value }
  end
  methods["select_by_" .. name] = function(self, value, options)
    if value == "" then
      return refuse(INVALID_UNIQUE, name .. ": length must be at least 1", nil, "invalid unique " .. name)
    end
    return natives.find(self.schema.name, fields(value), with_nulls(options))
  end
  for _, verb in ipairs({ "update", "upsert" }) do
    methods[verb .. "_by_" .. name] = function(self, value, entity, options)
      return write(self, verb, fields(value), checked(entity), options)
    end
  end
  methods["delete_by_" .. name] = function(self, value, options)
    return write(self, "delete", fields(value), nil, options)
  end
end

local function add_foreign(methods, name)
  local function page(self, key, size, offset, options)
    local id, err = id_of(key, INVALID_FOREIGN_KEY)
    if not id then
      return failed(err)
    end
    return self:_page({ field = name, id = id }, size, offset, options)
  end
  methods["page_for_" .. name] = page
  methods["each_for_" .. name] = function(self, key, size, options)
    return through(function(offset) return page(self, key, size, offset, options) end)
  end
end

local function dao(name)
  local schema = natives.describe(name)
  if not schema then
    return nil
  end
  local methods = setmetatable({}, { __index = DAO })
  for field, attributes in pairs(schema.fields) do
    if attributes.unique then
      add_unique(methods, field)
    end
    if attributes.type == "foreign" then
      add_foreign(methods, field)
    end
  end
  return setmetatable({ schema = schema }, { __index = methods })
end

-- Kong's view of all tags: a row for each tag of each entity.
local tags = { schema = { name = "tags" } }

local function rows_of(entities, name, only, rows)
  for _, entity in ipairs(entities) do
    for _, tag in ipairs(entity.tags or {}) do
      if only == nil or only == tag then
        rows[#rows + 1] = { tag = tag, entity_name = name, entity_id = entity.id }
      end
    end
  end
end

local function all_tags(only)
  local rows = {}
  for _, name in ipairs(natives.names()) do
    local offset
    repeat
      local entities, following = natives.page(name, { size = MAX_SIZE, after = offset })
      rows_of(entities, name, only, rows)
      offset = following
    until not offset
  end
  return rows
end

function tags.page()
  return all_tags(), nil, nil, nil
end

function tags.page_by_tag(_, tag)
  if type(tag) ~= "string" then
    error("tag must be a string", 2)
  end
  return all_tags(tag), nil, nil, nil
end

function tags.each()
  return through(function() return all_tags() end)
end

-- The only workspace.
local workspaces = { schema = { name = "workspaces", primary_key = { "id" }, endpoint_key = "name", fields = {} } }

local function the_workspace(is_meant)
  return is_meant and { id = WORKSPACE, name = "default", config = {}, meta = {} } or nil
end

function workspaces.select(_, key)
  local id, err = id_of(key, INVALID_PRIMARY_KEY)
  if not id then
    return failed(err)
  end
  return the_workspace(id == WORKSPACE)
end

function workspaces.select_by_name(_, name)
  return the_workspace(name == "default")
end

function workspaces.page()
  return { the_workspace(true) }, nil, nil, nil
end

function workspaces.each()
  return through(function() return { the_workspace(true) } end)
end

-- What no kind of entity of the gateway stands behind.
local OWN = { tags = tags, workspaces = workspaces }

-- What a module that is loaded before the node serves keeps: it becomes the object at its first use.
local function later(name)
  return setmetatable({}, {
    __index = function(self, member)
      if not natives.is_ready() and member == "schema" then
        return { name = name, fields = {}, primary_key = { "id" } }
      end
      local made = dao(name)
      if not made then
        error("kong.db has no " .. name, 2)
      end
      self.schema = made.schema
      setmetatable(self, getmetatable(made))
      return self[member]
    end,
  })
end

local function look_up(db, name)
  if type(name) ~= "string" then
    return nil
  end
  if name == "strategy" then
    return natives.strategy()
  end
  if not OWN[name] and not natives.is_ready() then
    return later(name)
  end
  local made = OWN[name] or dao(name)
  db[name] = made
  return made
end

return setmetatable({}, { __index = look_up })
