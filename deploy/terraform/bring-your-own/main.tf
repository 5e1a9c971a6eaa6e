# Hosts that exist already: nothing is created, the file of the hosts is written.
#
#   terraform apply -var-file=hosts.tfvars
#   terraform output -raw hosts_toml > hosts.toml      # then connect once to each host by ssh, to know its key
terraform {
  required_version = ">= 1.5"
}

variable "hosts" {
  description = "By name. Without an internal_address, load goes to the address."
  type = map(object({
    address          = string
    internal_address = optional(string)
    roles            = list(string)
  }))
}

variable "user" {
  type    = string
  default = "root"
}

variable "port" {
  type    = number
  default = 22
}

variable "identity_file" {
  type    = string
  default = "~/.ssh/id_ed25519"
}

variable "weirlab" {
  type    = string
  default = null
}

module "hosts_file" {
  source        = "../hosts-file"
  weirlab       = var.weirlab
  user          = var.user
  port          = var.port
  identity_file = pathexpand(var.identity_file)
  hosts = { for name, host in var.hosts : name => {
    address          = host.address
    internal_address = coalesce(host.internal_address, host.address)
    roles            = host.roles
  } }
}

output "hosts_toml" {
  value = module.hosts_file.toml
}
