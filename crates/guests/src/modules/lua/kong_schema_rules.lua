-- kong.db.schema.rules: the rules on one value, in the order in which Kong checks them.
local null = ngx.null
local _M = {}

function _M.is_reference(value)
  return type(value) == "string" and value:sub(1, 9) == "{vault://" and value:sub(-1) == "}"
end

local function shown(value) return value == null and "null" or tostring(value) end

local function listed(values)
  local texts = {}
  for index, value in ipairs(values) do texts[index] = shown(value) end
  return table.concat(texts, ", ")
end

local function contains(list, wanted)
  for _, value in ipairs(list) do
    if value == wanted then return true end
  end
  return false
end

local function length(value, field)
  if field.type ~= "map" and field.type ~= "record" then return #value end
  local count = 0
  for _ in pairs(value) do count = count + 1 end
  return count
end

local function is_regex(value)
  local _, wrong = ngx.re.match("any string", value)
  return wrong == nil
end

local UUID = "^%x%x%x%x%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x$"

-- Subsets of which the elements must all be of one.
local function of_several_subsets(value, subsets)
  local found = {}
  for _, subset in ipairs(subsets) do
    local own = {}
    for _, element in ipairs(value) do
      if contains(subset, element) then own[#own + 1] = "'" .. tostring(element) .. "'" end
    end
    if #own > 0 then found[#found + 1] = "(" .. table.concat(own, ", ") .. ")" end
  end
  if #found > 1 then return "these sets are mutually exclusive: " .. table.concat(found, ", ") end
end

local function custom(value, validate)
  local ok, wrong = validate(value)
  if not ok then return wrong or "failed validating: " .. tostring(value) end
end

-- Each says what is wrong with a value, by what the field declares for it.
local RULES = {
  { "eq", function(value, wanted) return value ~= wanted and "value must be " .. shown(wanted) end },
  { "ne", function(value, refused) return value == refused and "value must not be " .. shown(value) end },
  { "not_one_of", function(value, list)
    return contains(list, value) and "must not be one of: " .. listed(list)
  end },
  { "one_of", function(value, list)
    return not contains(list, value) and "expected one of: " .. listed(list)
  end },
  { "gt", function(value, limit) return not (value > limit) and "value must be greater than " .. limit end },
  { "timestamp", function(value) return not (value > 0) and "expected a valid timestamp" end },
  { "uuid", function(value) return not value:lower():match(UUID) and "expected a valid UUID" end },
  { "is_regex", function(value) return not is_regex(value) and "not a valid regex: " .. value end },
  { "between", function(value, limits)
    return (value < limits[1] or value > limits[2])
      and ("value should be between %d and %d"):format(limits[1], limits[2])
  end },
  { "len_eq", function(value, wanted, field)
    return length(value, field) ~= wanted and ("length must be %d"):format(wanted)
  end },
  { "len_min", function(value, least, field)
    return length(value, field) < least and ("length must be at least %d"):format(least)
  end },
  { "len_max", function(value, most, field)
    return length(value, field) > most and ("length must be at most %d"):format(most)
  end },
  { "starts_with", function(value, start)
    return value:sub(1, #start) ~= start and "should start with: " .. start
  end },
  { "not_match", function(value, pattern) return value:match(pattern) and "invalid value: " .. value end },
  { "match_none", function(value, list)
    for _, item in ipairs(list) do
      if value:match(item.pattern) then return item.err or "invalid value: " .. value end
    end
  end },
  { "match", function(value, pattern) return not value:match(pattern) and "invalid value: " .. value end },
  { "match_all", function(value, list)
    for _, item in ipairs(list) do
      if not value:match(item.pattern) then return item.err or "invalid value: " .. value end
    end
  end },
  { "match_any", function(value, any)
    for _, pattern in ipairs(any.patterns) do
      if value:match(pattern) then return end
    end
    return any.err or "invalid value: " .. value
  end },
  { "contains", function(value, wanted)
    return not contains(value, wanted) and "expected to contain: " .. tostring(wanted)
  end },
  { "mutually_exclusive_subsets", of_several_subsets },
  { "custom_validator", custom },
}

-- What is wrong with a value of the right type, in Kong's words. What a function says of members goes to the errors.
function _M.broken(field, value, errors, path)
  if field.type == "string" and field.len_min == nil and value == "" then return "length must be at least 1" end
  for _, rule in ipairs(RULES) do
    local declared = field[rule[1]]
    if declared ~= nil and declared ~= false then
      local wrong = rule[2](value, declared, field)
      if type(wrong) == "table" then
        for name, message in pairs(wrong) do
          errors[#errors + 1] = { path == "" and tostring(name) or path .. "." .. name, tostring(message) }
        end
        return
      elseif wrong then
        return field.err or wrong
      end
    end
  end
end

return _M
