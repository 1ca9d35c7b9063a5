// Azure Managed Redis for Celery's messages. They are wake-ups: no persistence, and losing it all loses
// no work. Celery cannot sign in with an identity yet, so its key goes into the vault and nowhere else.
param location string
param name string
param vaultName string
param endpointSubnetId string
param networkId string

@description('Private DNS zone of the service in this cloud.')
param zone string

@description('Memory and throughput of the server.')
param sku string

@description('A second copy of the server, for when the first one is maintained.')
param highAvailability bool

resource server 'Microsoft.Cache/redisEnterprise@2025-07-01' = {
  name: '${name}-${uniqueString(resourceGroup().id)}'
  location: location
  sku: {
    name: sku
  }
  properties: {
    minimumTlsVersion: '1.2'
    highAvailability: highAvailability ? 'Enabled' : 'Disabled'
    publicNetworkAccess: 'Disabled'
  }
}

resource database 'Microsoft.Cache/redisEnterprise/databases@2025-07-01' = {
  parent: server
  name: 'default'
  properties: {
    clientProtocol: 'Encrypted'
    port: 10000
    // A worker waits on several lists in one call, which a cluster refuses for lists in different slots.
    clusteringPolicy: 'NoCluster'
    evictionPolicy: 'NoEviction'
    accessKeysAuthentication: 'Enabled'
  }
}

module url 'secret.bicep' = {
  name: 'secret-redis-url'
  params: {
    vaultName: vaultName
    name: 'redis-url'
    value: 'rediss://:${uriComponent(database.listKeys().primaryKey)}@${server.properties.hostName}:10000/0?ssl_cert_reqs=required'
  }
}

module key 'secret.bicep' = {
  name: 'secret-redis-key'
  params: {
    vaultName: vaultName
    name: 'redis-key'
    value: database.listKeys().primaryKey
  }
}

module endpoint 'private-endpoint.bicep' = {
  name: 'endpoint-redis'
  params: {
    location: location
    name: '${name}-redis-pe'
    targetId: server.id
    group: 'redisEnterprise'
    zone: zone
    subnetId: endpointSubnetId
    networkId: networkId
  }
}

output host string = server.properties.hostName
output port int = 10000
output urlSecretUri string = url.outputs.uri
output keySecretUri string = key.outputs.uri
