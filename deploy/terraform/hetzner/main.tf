# Three servers on a private network: target, upstream and generator. The token is read from HCLOUD_TOKEN.
#
#   terraform apply -var=allowed_cidr=203.0.113.7/32
#   terraform output -raw hosts_toml > hosts.toml      # then connect once to each host by ssh, to know its key
#   weirlab run kong/plain-1 --hosts hosts.toml --targets weir,nginx
#   terraform destroy
terraform {
  required_version = ">= 1.5"
  required_providers {
    hcloud = {
      source  = "hetznercloud/hcloud"
      version = ">= 1.45"
    }
  }
}

provider "hcloud" {}

locals {
  servers = {
    target    = { address = "10.0.0.10", roles = ["target"] }
    upstream  = { address = "10.0.0.11", roles = ["upstream", "database"] }
    generator = { address = "10.0.0.12", roles = ["generator"] }
  }
}

resource "hcloud_ssh_key" "this" {
  name       = "weirlab"
  public_key = file(pathexpand(var.public_key_file))
}

resource "hcloud_network" "this" {
  name     = "weirlab"
  ip_range = "10.0.0.0/16"
}

resource "hcloud_network_subnet" "this" {
  network_id   = hcloud_network.this.id
  type         = "cloud"
  network_zone = "eu-central"
  ip_range     = "10.0.0.0/24"
}

# The private network is not filtered.
resource "hcloud_firewall" "this" {
  name = "weirlab"

  rule {
    direction  = "in"
    protocol   = "tcp"
    port       = "22"
    source_ips = [var.allowed_cidr]
  }
}

# Apart from each other, so that no two share a machine.
resource "hcloud_placement_group" "this" {
  name = "weirlab"
  type = "spread"
}

resource "hcloud_server" "host" {
  for_each = local.servers

  name               = "weirlab-${each.key}"
  image              = "debian-12"
  server_type        = var.server_type
  location           = var.location
  ssh_keys           = [hcloud_ssh_key.this.id]
  firewall_ids       = [hcloud_firewall.this.id]
  placement_group_id = hcloud_placement_group.this.id

  network {
    network_id = hcloud_network.this.id
    ip         = each.value.address
  }

  depends_on = [hcloud_network_subnet.this]
}

module "hosts_file" {
  source        = "../hosts-file"
  weirlab       = var.weirlab
  user          = "root"
  identity_file = trimsuffix(pathexpand(var.public_key_file), ".pub")
  hosts = { for name, host in hcloud_server.host : name => {
    address          = host.ipv4_address
    internal_address = local.servers[name].address
    roles            = local.servers[name].roles
  } }
}

output "hosts_toml" {
  value = module.hosts_file.toml
}
