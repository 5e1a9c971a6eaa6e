-- `io` for plugins that are only checked: nothing is opened, and what is written goes nowhere.
local why = ...
local error = error

local function refuse() error(why, 2) end

local silent = {}
function silent.write(file) return file end
function silent.flush() return true end
silent.setvbuf, silent.close = silent.flush, silent.flush
silent.read, silent.lines, silent.seek = refuse, refuse, refuse

-- The table itself is changed, because `package.loaded` has it, too.
io.open, io.lines, io.tmpfile = refuse, refuse, refuse
io.stdout, io.stderr = silent, silent
function io.write() return silent end
io.flush, io.close = silent.flush, silent.flush
