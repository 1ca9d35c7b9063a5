// Azure Managed Redis for Celery's messages. They are wake-ups: no persistence, and losing it all loses
// no work. Celery cannot sign in with an identity yet, so its key goes into the vault and nowhere else.
param location string
param name string
param vaultName string
param endpointSubnetId string
param networkId string

@description('Memory and throughput of the server.')
param sku string = 'Balanced_B0'

@description('End of the secrets written now; deploying again renews them.')
param secretsEnd int = dateTimeToEpoch(dateTimeAdd(utcNow(), 'P1Y'))

resource server 'Microsoft.Cache/redisEnterprise@2025-07-01' = {
  name: '${name}-${uniqueString(resourceGroup().id)}'
  location: location
  sku: {
    name: sku
  }
  properties: {
    minimumTlsVersion: '1.2'
    highAvailability: 'Enabled'
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

resource vault 'Microsoft.KeyVault/vaults@2023-07-01' existing = {
  name: vaultName
}

resource url 'Microsoft.KeyVault/vaults/secrets@2023-07-01' = {
  parent: vault
  name: 'redis-url'
  properties: {
    value: 'rediss://:${uriComponent(database.listKeys().primaryKey)}@${server.properties.hostName}:10000/0?ssl_cert_reqs=required'
    contentType: 'text/uri-list'
    attributes: {
      enabled: true
      exp: secretsEnd
    }
  }
}

resource key 'Microsoft.KeyVault/vaults/secrets@2023-07-01' = {
  parent: vault
  name: 'redis-key'
  properties: {
    value: database.listKeys().primaryKey
    contentType: 'text/plain'
    attributes: {
      enabled: true
      exp: secretsEnd
    }
  }
}

module endpoint 'private-endpoint.bicep' = {
  name: 'endpoint-redis'
  params: {
    location: location
    name: '${name}-redis-pe'
    targetId: server.id
    group: 'redisEnterprise'
    zone: 'privatelink.redis.azure.net'
    subnetId: endpointSubnetId
    networkId: networkId
  }
}

output host string = server.properties.hostName
output port int = 10000
output urlSecretUri string = url.properties.secretUri
output keySecretUri string = key.properties.secretUri
