# Three instances in one placement group: target, upstream and generator. x86 or Graviton.
#
#   terraform apply -var=allowed_cidr=203.0.113.7/32 -var=architecture=arm64
#   terraform output -raw hosts_toml > hosts.toml      # then connect once to each host by ssh, to know its key
#   weirlab run kong/plain-1 --hosts hosts.toml --targets weir,nginx
#   terraform destroy
terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.0"
    }
  }
}

provider "aws" {
  region = var.region

  default_tags {
    tags = { Project = "weirlab" }
  }
}

locals {
  default_type = { x86_64 = "c5.4xlarge", arm64 = "c7g.4xlarge" }[var.architecture]
  load_type    = coalesce(var.load_type, local.default_type)
  instances = {
    target    = { type = coalesce(var.target_type, local.default_type), roles = ["target"] }
    upstream  = { type = local.load_type, roles = ["upstream", "database"] }
    generator = { type = local.load_type, roles = ["generator"] }
  }
}

data "aws_ami" "debian" {
  most_recent = true
  owners      = ["136693071363"]

  filter {
    name   = "name"
    values = ["debian-12-*"]
  }

  filter {
    name   = "architecture"
    values = [var.architecture]
  }
}

data "aws_vpc" "default" {
  default = true
}

resource "aws_key_pair" "this" {
  key_name_prefix = "weirlab-"
  public_key      = file(pathexpand(var.public_key_file))
}

# Near each other, because the network's latency is part of every figure.
resource "aws_placement_group" "this" {
  name     = "weirlab-${aws_key_pair.this.key_pair_id}"
  strategy = "cluster"
}

resource "aws_security_group" "this" {
  name_prefix = "weirlab-"
  description = "ssh from outside, everything among the hosts"
  vpc_id      = data.aws_vpc.default.id

  ingress {
    description = "ssh"
    from_port   = 22
    to_port     = 22
    protocol    = "tcp"
    cidr_blocks = [var.allowed_cidr]
  }

  ingress {
    description = "among the hosts"
    from_port   = 0
    to_port     = 0
    protocol    = "-1"
    self        = true
  }

  egress {
    from_port   = 0
    to_port     = 0
    protocol    = "-1"
    cidr_blocks = ["0.0.0.0/0"]
  }
}

resource "aws_instance" "host" {
  for_each = local.instances

  ami                         = data.aws_ami.debian.id
  instance_type               = each.value.type
  key_name                    = aws_key_pair.this.key_name
  placement_group             = aws_placement_group.this.name
  vpc_security_group_ids      = [aws_security_group.this.id]
  associate_public_ip_address = true

  metadata_options {
    http_tokens = "required"
  }

  root_block_device {
    volume_size = 20
  }

  tags = { Name = "weirlab-${each.key}" }
}

module "hosts_file" {
  source        = "../hosts-file"
  weirlab       = var.weirlab
  user          = "admin"
  identity_file = trimsuffix(pathexpand(var.public_key_file), ".pub")
  hosts = { for name, host in aws_instance.host : name => {
    address          = host.public_ip
    internal_address = host.private_ip
    roles            = local.instances[name].roles
  } }
}

output "hosts_toml" {
  value = module.hosts_file.toml
}
