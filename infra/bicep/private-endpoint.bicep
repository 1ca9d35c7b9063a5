// The private end of one service in the network, under its usual name.
param location string
param name string
param targetId string
param group string
param zone string
param subnetId string
param networkId string

resource dnsZone 'Microsoft.Network/privateDnsZones@2020-06-01' = {
  name: zone
  location: 'global'
}

resource link 'Microsoft.Network/privateDnsZones/virtualNetworkLinks@2020-06-01' = {
  parent: dnsZone
  name: 'network'
  location: 'global'
  properties: {
    registrationEnabled: false
    virtualNetwork: {
      id: networkId
    }
  }
}

resource endpoint 'Microsoft.Network/privateEndpoints@2024-01-01' = {
  name: name
  location: location
  properties: {
    subnet: {
      id: subnetId
    }
    privateLinkServiceConnections: [
      {
        name: group
        properties: {
          privateLinkServiceId: targetId
          groupIds: [
            group
          ]
        }
      }
    ]
  }
}

resource records 'Microsoft.Network/privateEndpoints/privateDnsZoneGroups@2024-01-01' = {
  parent: endpoint
  name: 'default'
  properties: {
    privateDnsZoneConfigs: [
      {
        name: group
        properties: {
          privateDnsZoneId: dnsZone.id
        }
      }
    ]
  }
}
