// One virtual network: a subnet for the processes, one for the private ends of what they use.
param location string
param name string

resource appGuard 'Microsoft.Network/networkSecurityGroups@2024-01-01' = {
  name: '${name}-apps-nsg'
  location: location
  properties: {
    securityRules: [
      {
        name: 'https-in'
        properties: {
          priority: 100
          direction: 'Inbound'
          access: 'Allow'
          protocol: 'Tcp'
          sourceAddressPrefix: 'Internet'
          sourcePortRange: '*'
          destinationAddressPrefix: '*'
          destinationPortRange: '443'
        }
      }
    ]
  }
}

resource endpointGuard 'Microsoft.Network/networkSecurityGroups@2024-01-01' = {
  name: '${name}-endpoints-nsg'
  location: location
  properties: {
    securityRules: [
      {
        name: 'nothing-from-outside'
        properties: {
          priority: 100
          direction: 'Inbound'
          access: 'Deny'
          protocol: '*'
          sourceAddressPrefix: 'Internet'
          sourcePortRange: '*'
          destinationAddressPrefix: '*'
          destinationPortRange: '*'
        }
      }
    ]
  }
}

resource network 'Microsoft.Network/virtualNetworks@2024-01-01' = {
  name: '${name}-net'
  location: location
  properties: {
    addressSpace: {
      addressPrefixes: [
        '10.40.0.0/16'
      ]
    }
    subnets: [
      {
        name: 'apps'
        properties: {
          addressPrefix: '10.40.0.0/23'
          networkSecurityGroup: {
            id: appGuard.id
          }
          delegations: [
            {
              name: 'apps'
              properties: {
                serviceName: 'Microsoft.App/environments'
              }
            }
          ]
        }
      }
      {
        name: 'endpoints'
        properties: {
          addressPrefix: '10.40.2.0/24'
          networkSecurityGroup: {
            id: endpointGuard.id
          }
        }
      }
    ]
  }
}

output networkId string = network.id
output appSubnetId string = '${network.id}/subnets/apps'
output endpointSubnetId string = '${network.id}/subnets/endpoints'
