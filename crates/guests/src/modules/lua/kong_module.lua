-- kong.tools.module: modules that may be missing.
local function load_module_if_exists(name)
  local ok, module = pcall(require, name)
  if ok then
    return true, module
  end
  module = tostring(module)
  if module:find("module '" .. name .. "' not found", 1, true) then
    return false, module
  end
  error("error loading module '" .. name .. "':\n" .. module, 2)
end

return { load_module_if_exists = load_module_if_exists }
