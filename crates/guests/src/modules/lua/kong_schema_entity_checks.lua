-- kong.db.schema.entity_checks: the rules across the fields of a record or an entity.
local null = ngx.null
local _M = {}

local function at(value, path)
  for name in path:gmatch("[^.]+") do
    if type(value) ~= "table" then return nil end
    value = value[name]
  end
  return value
end

local function is_set(value)
  return not (value == nil or value == null or value == "" or type(value) == "table" and next(value) == nil)
end

local function quoted(names)
  local texts = {}
  for index, name in ipairs(names) do texts[index] = "'" .. name .. "'" end
  return table.concat(texts, ", ")
end

local function count_set(entity, names)
  local count = 0
  for _, name in ipairs(names) do
    if is_set(at(entity, name)) then count = count + 1 end
  end
  return count
end

-- The declaration of a field at a path.
local function field_at(fields, path)
  local found
  for name in path:gmatch("[^.]+") do
    found = nil
    for _, item in ipairs(fields or {}) do
      if item[name] then found = item[name] end
    end
    if not found then return nil end
    fields = found.fields
  end
  return found
end

-- What a rule adds to the declaration of a field.
local function narrowed(check, path, more)
  local field = {}
  for name, member in pairs(field_at(check.fields, path) or {}) do field[name] = member end
  for name, member in pairs(more) do field[name] = member end
  return field
end

-- Whether the value of a field fits `if_match`, whether or not the field may have none.
local function matches(check, path, more)
  return not check.Schema.first_error(narrowed(check, path, more), at(check.entity, path))
end

local function at_least_one(check, names, text)
  if count_set(check.entity, names) > 0 then return end
  return text and text:format(quoted(names))
    or "at least one of these fields must be non-empty: " .. quoted(names)
end

local CHECKS = {}

function CHECKS.at_least_one_of(check, names) return at_least_one(check, names) end

function CHECKS.conditional_at_least_one_of(check, rule)
  if at(check.entity, rule.if_field) == nil then return end
  if matches(check, rule.if_field, rule.if_match) then
    return at_least_one(check, rule.then_at_least_one_of, rule.then_err)
  elseif rule.else_match and matches(check, rule.if_field, rule.else_match) then
    return at_least_one(check, rule.else_then_at_least_one_of, rule.else_then_err)
  end
end

function CHECKS.only_one_of(check, names)
  return count_set(check.entity, names) ~= 1
    and "exactly one of these fields must be non-empty: " .. quoted(names)
end

function CHECKS.distinct(check, names)
  local seen = {}
  for _, name in ipairs(names) do
    local value = at(check.entity, name)
    if is_set(value) then
      if seen[value] then return "values of these fields must be distinct: " .. quoted(names) end
      seen[value] = true
    end
  end
end

function CHECKS.mutually_required(check, names)
  local count = count_set(check.entity, names)
  return count > 0 and count < #names and "all or none of these fields must be set: " .. quoted(names)
end

function CHECKS.mutually_exclusive(check, names)
  return count_set(check.entity, names) > 1
    and "only one or none of these fields must be set: " .. quoted(names)
end

function CHECKS.mutually_exclusive_sets(check, sets)
  local function set_of(names)
    local own = {}
    for _, name in ipairs(names) do
      if is_set(at(check.entity, name)) then own[#own + 1] = name end
    end
    return own
  end
  local one, other = set_of(sets.set1), set_of(sets.set2)
  if #one > 0 and #other > 0 then
    return "these sets are mutually exclusive: (" .. quoted(one) .. "), (" .. quoted(other) .. ")"
  end
end

function CHECKS.conditional(check, rule)
  if not matches(check, rule.if_field, rule.if_match) then return end
  local wrong =
    check.Schema.first_error(narrowed(check, rule.then_field, rule.then_match), at(check.entity, rule.then_field))
  if not wrong then return end
  check.add(rule.then_field, wrong)
  return rule.then_err and rule.then_err:format(rule.if_field)
    or "failed conditional validation given value of field '" .. rule.if_field .. "'"
end

-- The entity with the fields alone that a function asks for.
local function projection(entity, paths)
  local made = {}
  for _, path in ipairs(paths) do
    local into, last = made, path
    for name, rest in path:gmatch("([^.]+)(%.?)") do
      last = name
      if rest == "." then
        if type(into[name]) ~= "table" then into[name] = {} end
        into = into[name]
      end
    end
    into[last] = at(entity, path)
  end
  return made
end

function CHECKS.custom_entity_check(check, rule)
  if not rule.field_sources then return end
  for _, path in ipairs(rule.field_sources) do
    if check.is_broken(path) and not rule.run_with_invalid_fields then return end
    if at(check.entity, path) == nil and not rule.run_with_missing_fields then
      check.add(path, "field required for entity check")
      return
    end
  end
  local ok, wrong = rule.fn(projection(check.entity, rule.field_sources))
  if not ok then return wrong or "entity check failed" end
end

local function below(path, name) return path == "" and name or path .. "." .. name end

-- Runs the checks of a record. `errors.from` is how many there were before the record's own.
function _M.run(Schema, declared, record, path, errors)
  local list = errors.list
  local check = { Schema = Schema, fields = declared.fields, entity = record }
  function check.add(name, message) list[#list + 1] = { below(path, name), message } end
  function check.is_broken(name)
    for index = errors.from + 1, #list do
      if list[index][1] == below(path, name) then return true end
    end
    return false
  end
  local function report(wrong)
    if type(wrong) == "table" then
      for name, message in pairs(wrong) do
        if type(name) == "number" then report(message) else check.add(tostring(name), tostring(message)) end
      end
    elseif wrong then
      list[#list + 1] = { below(path, "@entity"), tostring(wrong) }
    end
  end
  for _, item in ipairs(declared.entity_checks or {}) do
    local name, rule = next(item)
    if CHECKS[name] then report(CHECKS[name](check, rule)) end
  end
  if declared.check then
    local ok, wrong = declared.check(record)
    if not ok then report(wrong or "entity check failed") end
  end
end

return _M
