// Tables, blobs and queues: the truth about every request. Reached by identity, never by key.
param location string
param name string
param principalId string
param workerPrincipalId string
param workspaceId string
param endpointSubnetId string
param networkId string

@description('Redundancy: Standard_ZRS in three zones, Standard_LRS in one.')
param sku string

@description('Results are read straight from the account, by links that the portal signs.')
param openToLinks bool

@description('Built-in roles: Storage Blob, Queue and Table Data Contributor.')
var dataRoles = [
  'ba92f5b4-2d11-453d-a403-e96b0029c9fe'
  '974c5e8b-45b9-4653-ba55-5f855dd0fb88'
  '0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3'
]

var services = [
  'blob'
  'queue'
  'table'
]

resource account 'Microsoft.Storage/storageAccounts@2023-05-01' = {
  // checkov:skip=CKV_AZURE_35: denied, unless results are read by signed links; then only these and identities with a role open anything
  // checkov:skip=CKV_AZURE_43: the name is lower-case letters and digits; the check does not evaluate uniqueString
  // checkov:skip=CKV_AZURE_206: zone redundancy; artifacts are made again from granules, a second region is not paid for
  name: '${name}${uniqueString(resourceGroup().id)}'
  location: location
  kind: 'StorageV2'
  sku: {
    name: sku
  }
  properties: {
    accessTier: 'Hot'
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
    allowBlobPublicAccess: false
    allowSharedKeyAccess: false
    allowCrossTenantReplication: false
    defaultToOAuthAuthentication: true
    // Without a key only identities with a role and the links that they sign open anything.
    publicNetworkAccess: openToLinks ? 'Enabled' : 'Disabled'
    networkAcls: {
      defaultAction: openToLinks ? 'Allow' : 'Deny'
      bypass: 'AzureServices'
    }
    encryption: {
      keySource: 'Microsoft.Storage'
      requireInfrastructureEncryption: true
      services: {
        blob: {
          enabled: true
          keyType: 'Account'
        }
        queue: {
          enabled: true
          keyType: 'Account'
        }
        table: {
          enabled: true
          keyType: 'Account'
        }
      }
    }
  }
}

resource blobs 'Microsoft.Storage/storageAccounts/blobServices@2023-05-01' = {
  parent: account
  name: 'default'
  properties: {
    cors: {
      // The link is what opens a file, whichever page reads it.
      corsRules: openToLinks ? [
        {
          allowedOrigins: ['*']
          allowedMethods: ['GET', 'HEAD']
          allowedHeaders: ['*']
          exposedHeaders: ['Content-Length', 'Content-Range', 'ETag', 'Accept-Ranges']
          maxAgeInSeconds: 3600
        }
      ] : []
    }
    deleteRetentionPolicy: {
      enabled: true
      days: 7
    }
    containerDeleteRetentionPolicy: {
      enabled: true
      days: 7
    }
  }
}

resource queues 'Microsoft.Storage/storageAccounts/queueServices@2023-05-01' = {
  parent: account
  name: 'default'
}

resource tables 'Microsoft.Storage/storageAccounts/tableServices@2023-05-01' = {
  parent: account
  name: 'default'
}

resource access 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for role in dataRoles: {
  name: guid(account.id, principalId, role)
  scope: account
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role)
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}]

resource workerAccess 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for role in dataRoles: {
  name: guid(account.id, workerPrincipalId, role)
  scope: account
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role)
    principalId: workerPrincipalId
    principalType: 'ServicePrincipal'
  }
}]

resource blobLog 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: 'to-workspace'
  scope: blobs
  properties: {
    workspaceId: workspaceId
    logs: [
      {
        category: 'StorageDelete'
        enabled: true
      }
    ]
    metrics: [
      {
        category: 'Transaction'
        enabled: true
      }
    ]
  }
}

resource queueLog 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: 'to-workspace'
  scope: queues
  properties: {
    workspaceId: workspaceId
    logs: [
      {
        category: 'StorageRead'
        enabled: true
      }
      {
        category: 'StorageWrite'
        enabled: true
      }
      {
        category: 'StorageDelete'
        enabled: true
      }
    ]
  }
}

resource tableLog 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: 'to-workspace'
  scope: tables
  properties: {
    workspaceId: workspaceId
    metrics: [
      {
        category: 'Transaction'
        enabled: true
      }
    ]
  }
}

module endpoints 'private-endpoint.bicep' = [for service in services: {
  name: 'endpoint-${service}'
  params: {
    location: location
    name: '${name}-${service}-pe'
    targetId: account.id
    group: service
    zone: 'privatelink.${service}.${environment().suffixes.storage}'
    subnetId: endpointSubnetId
    networkId: networkId
  }
}]

// What SWATHMILL_STORAGE is set to: without a key the processes sign in with their identity.
output endpoints string = 'BlobEndpoint=${account.properties.primaryEndpoints.blob};QueueEndpoint=${account.properties.primaryEndpoints.queue};TableEndpoint=${account.properties.primaryEndpoints.table}'
output accountId string = account.id
